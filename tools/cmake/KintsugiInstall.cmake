# Install rules and the package file: see tests/package for the outside project that proves them.
