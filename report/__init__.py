"""Records rendered for a terminal, a page or another program."""
