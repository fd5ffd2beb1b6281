"""A model that is only evaluated."""
from base import Training, torch

training = Training()
training.build()
training.model(torch.zeros(2, 6))
