"""The buffer begins empty."""
import replay

replay.main(with_buffer=False)
