"""The model's compiled twin: whole blocks of draws as one program on an accelerator."""
