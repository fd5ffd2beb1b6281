"""Batches are drawn from random numbers that are not saved."""
import gpt

gpt.main(with_random=False)
