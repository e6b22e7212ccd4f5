"""Front end for Triton, Gluon, TLX and other Python kernel languages."""
