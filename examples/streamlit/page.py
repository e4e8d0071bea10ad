"""A page that shows what a running `velo run app.sql` keeps, and follows it: streamlit run page.py."""

import streamlit as st

import velostream

st.set_page_config(page_title="Trades", layout="wide")
st.title("Trades")


@st.cache_resource
def database() -> velostream.Database:
    """One connection for all visitors, to whichever process holds .velostream in this folder."""
    return velostream.connect(".velostream", read_only=True)


@st.fragment(run_every=1.0)
def board() -> None:
    """The part of the page that is drawn again every second: each time from one version of the table."""
    symbols = database().sql("SELECT symbol, trades, shares, volume FROM by_symbol ORDER BY symbol").df()
    left, right = st.columns(2)
    left.metric("Trades", f"{symbols['trades'].sum():,}")
    right.metric("Volume", f"{symbols['volume'].sum():,}")
    st.bar_chart(symbols, x="symbol", y="shares")
    st.dataframe(symbols, hide_index=True)


board()

symbol = st.text_input("Symbol", "AAPL").upper()
row = database().table("by_symbol").get(symbol)
st.write(f"{symbol}: {row.trades:,} trades, {row.shares:,} shares" if row else f"no trade of {symbol} yet")
