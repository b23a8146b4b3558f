"""The net under changes that must not move a number: fixed inputs, and the rows, cards and pages made of them."""
