SELECT symbol, price FROM trades WHERE volume > 1000;
