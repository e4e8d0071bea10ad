"""Tools around the product: the development broker, the doctor, the demo, the warm-up of Java."""
