"""What compression makes of trained `nn.GRU` and `nn.LSTM` networks, for the README."""
