"""The buffer is saved."""
import replay

replay.main(with_buffer=True)
