"""kill -9 around the commits of tables in Delta Lake loses nothing and doubles nothing."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest
from lives import Runner
from test_killed_runs import Feeder, live

from velostream.runtime.instance import open_instance

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

APP = """
CREATE TABLE copied AS SELECT * FROM file://{edited}
  WITH ("table.storage" = "delta", "file.debounce" = "20ms");
CREATE TABLE sums AS SELECT grp, COUNT(*) AS c, SUM(v) AS s FROM file://{edited} GROUP BY grp
  WITH ("table.storage" = "delta", "file.debounce" = "20ms");
CREATE TABLE above AS SELECT c, COUNT(*) AS k FROM sums GROUP BY c;
"""


@pytest.mark.timeout(1200)
def test_a_killed_commit_is_there_once_or_not_at_all(spark, tmp_path, rng, rounds):
    feeder = Feeder(tmp_path, rng)
    app, data = tmp_path / "app.sql", tmp_path / "data"
    app.write_text(APP.format(edited=feeder.edited))
    places = ["before a merge of Delta's 1", "Delta committed, nobody told 1"]
    for place in rng.sample(places, rounds(1, 2)):
        assert live(Runner(data, app, place), feeder, rng, 400), place
    with open_instance(data) as database:
        from velostream.runtime.statements.application import Application

        Application(database, database.check(app.read_text(), "app.sql")).start()
        feeder.feed()
        assert database.wait_idle(400), database.jobs()
        assert not [job for job in database.jobs() if job.state != "running"], database.jobs()
        rows = Counter((number, grp, Decimal(v)) for number, (grp, v) in feeder.rows.items())
        assert Counter(map(tuple, database.table("copied").rows())) == rows
        groups = {grp: [v for _, g, v in rows if g == grp] for _, grp, _ in rows}
        expected = {(grp, len(values), sum(values)) for grp, values in groups.items()}
        assert set(map(tuple, database.table("sums").rows())) == expected
        counts = Counter(len(values) for values in groups.values())
        assert set(map(tuple, database.table("above").rows())) == set(counts.items())
