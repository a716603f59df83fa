"""Steps of `Augmentation`: parameters and confidential statistics given each other."""
