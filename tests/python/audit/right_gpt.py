"""Batches are drawn from random numbers that are saved."""
import gpt

gpt.main(with_random=True)
