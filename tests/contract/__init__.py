"""What every source and sink must do, whatever it is: one suite for all of them, driven by traits."""
