"""Everything is saved and put back."""
from base import Training

Training().main()
