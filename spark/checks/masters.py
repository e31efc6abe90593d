"""A63: who was master in which epoch, by controllers, brokers and acknowledgements.

Controllers name one master for each epoch, and each names epochs that rise; nobody else says that
it is the master of that epoch, and nobody else acknowledges in it. Source: spec/proof.md A63.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.history.domains import LEADING
from spark.context import Context
from spark.evidence import tell, text
from spark.facts import unchecked, unknown
from spark.result import CheckResult

NOBODY: Final = "no controller said who is master"


def check_masters(context: Context) -> CheckResult:
    """Return A63."""
    if not context.history.rows("masters"):
        return unchecked("A63", NOBODY)
    told = context.table("masters").withColumn("grp", F.coalesce("grp", F.lit("")))
    if not told.filter("epoch is null").isEmpty():
        return unknown("A63", "needs masters.epoch")
    named = told.filter("node is not null").select("grp", "epoch", "node").distinct().persist()
    acked = context.sends.filter("outcome = 'ok' and raft_term is not null and node is not null")
    # Groups count their epochs each for itself.
    group = F.coalesce("raft_group", F.lit(0)).alias("group")
    acked = acked.select(group, "node", F.col("raft_term").alias("epoch")).distinct().persist()
    led = context.table("raft_probe").filter("ok and term is not null")
    led = led.filter(F.lower("role").isin(*LEADING))
    led = led.select("node", F.col("term").alias("epoch")).distinct()
    two = _several(named, ["grp", "epoch"])
    parts = [
        _worded(two, text("controllers named ", _nodes(), " as masters of ", F.col("epoch"))),
        _falls(told),
        _not_named(led, named, "says that it leads"),
        _not_named(acked.select("node", "epoch").distinct(), named, "acknowledged"),
        _worded(
            _several(acked, ["group", "epoch"]),
            text(_nodes(), " acknowledged in epoch ", F.col("epoch")),
        ),
    ]
    result = CheckResult(check="A63", summary="an epoch has one master, and epochs rise")
    result.details = {"epochs": named.select("grp", "epoch").distinct().count()}
    return tell(context, result, reduce(DataFrame.unionByName, parts), F.col("words"))


def _several(rows: DataFrame, keys: list[str]) -> DataFrame:
    """Return the keys that several nodes have."""
    nodes = F.sort_array(F.collect_set("node")).alias("nodes")
    return rows.groupBy(*keys).agg(nodes).filter("size(nodes) > 1")


def _nodes() -> Column:
    return F.concat_ws(", ", "nodes")


def _falls(told: DataFrame) -> DataFrame:
    """Return where a controller named an earlier epoch than before."""
    window = Window.partitionBy("controller", "grp").orderBy("t0", "t1")
    rows = told.withColumn("before", F.lag(F.struct("t1", "epoch")).over(window))
    rows = rows.filter("before.t1 < t0 and epoch < before.epoch")
    words = text(
        F.col("controller"), " named epoch ", F.col("epoch"), " after ", F.col("before.epoch")
    )
    return _worded(rows, words)


def _not_named(claims: DataFrame, named: DataFrame, what: str) -> DataFrame:
    """Return the claims of nodes in epochs for which controllers named others only."""
    masters = named.groupBy("epoch").agg(F.sort_array(F.collect_set("node")).alias("nodes"))
    rows = claims.join(masters, "epoch").filter(~F.array_contains("nodes", F.col("node")))
    words = text(
        F.col("node"), f" {what} in epoch ", F.col("epoch"), ", whose master is ", _nodes()
    )
    return _worded(rows, words)


def _worded(rows: DataFrame, words: Column) -> DataFrame:
    return rows.select(F.col("epoch").cast("string").alias("key"), words.alias("words"))
