"""How far apart two engines, or two settings of one, are in what they predict on a text."""
