"""Stands for apex, of which Megatron and the client take two optimizers and one layer."""
