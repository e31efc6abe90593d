"""The job on a real cluster: a master and two workers as processes that cannot see our packages."""

import json
import shutil
import subprocess
import sys
import zipfile

import pyarrow.parquet as pq
import pytest

from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from spark import check_history
from spark import cluster as shipping
from spark.cluster import ClusterError, Worker, complain, find_master, pack
from spark.job import CHECKS
from tests.spark.cluster import check, cluster, make_python
from tests.spark.generate import (
    HistoryBuilder,
    plant_aborted,
    plant_corrupt,
    plant_divergence,
    plant_lost,
    plant_phantom,
    plant_two_leaders,
)
from tests.spark.reports import SPARK_MARKS

pytestmark = SPARK_MARKS
PLANTED = {"A1": 2, "A5": 1, "A6": 1, "A7": 1, "A15": 1, "A30": 1, "A35": 1}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return make_python(tmp_path_factory.mktemp("python") / "environment")


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster") / "spark") as url:
        yield url


def spoiled(path):
    run = HistoryBuilder(queues=3)
    messages = run.traffic(60)
    plants = [plant_lost, plant_lost, plant_phantom, plant_corrupt, plant_aborted]
    run.election("n0", 1)
    for plant, message in zip(plants, messages[10::5], strict=False):
        plant(run, message)
    plant_two_leaders(run, messages[2])
    plant_divergence(run, messages[4])
    return run.write(path)


def without_times(report):
    checks = {name: dict(c) for name, c in report["checks"].items()}
    for one in checks.values():
        del one["seconds"]
        for item in one["evidence"]:  # tasks end in any order, and with them what they collect
            item["rows"] = sorted(item["rows"], key=str)
        one["evidence"] = sorted(one["evidence"], key=str)
    return {**report, "checks": checks, "timings_s": None}


def run_elsewhere(place, python, words):
    words = [python, "-c", words]
    return subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)


def anomalies(run):
    rows = pq.read_table(run / "verdict" / "anomalies").to_pylist()
    return sorted((row["anomaly"], row["key"], row["explain"]) for row in rows)


@pytest.mark.timeout(1_200)  # two whole jobs: a minute on two idle cores, seven where others work
@pytest.mark.parametrize(
    "only",
    [(*PLANTED, "A45", "A48"), pytest.param(CHECKS, marks=pytest.mark.further)],
    ids=["planted", "all"],
)
def test_workers_without_our_packages_come_to_the_same_verdict(tmp_path, master, python, only):
    alone = run_elsewhere(tmp_path, python, "import pyarrow, spark")
    assert "No module named 'spark'" in alone.stderr
    run = spoiled(tmp_path / "run")
    asked = f"--only={','.join(only)}"
    there = check(run.as_uri(), master, python, asked)
    assert there.returncode == 1, there.stderr
    found_there = anomalies(run)
    shutil.rmtree(run / "verdict")
    here = check(run, "local[2]", sys.executable, asked)
    assert here.returncode == 1, here.stderr
    reports = [without_times(json.loads(one.stdout)) for one in (there, here)]
    there, here = (report.pop("checks") for report in reports)
    assert {name: one for name, one in there.items() if one != here[name]} == {}
    assert reports[0] == reports[1]
    assert not reports[0]["problems"]
    counts = {name: there[name]["count"] for name in PLANTED}
    assert counts == PLANTED
    assert found_there == anomalies(run)


def test_what_workers_lack_is_said(tmp_path, master, tmp_path_factory):
    lacking = make_python(tmp_path / "lacking", without="pyarrow")
    run = HistoryBuilder()
    run.traffic(4)
    told = check(run.write(tmp_path / "run"), master, lacking)
    assert told.returncode == 255
    assert "cannot import pyarrow (ModuleNotFoundError: No module named 'pyarrow')" in told.stderr
    assert "PYSPARK_PYTHON" in told.stderr
    told = check(tmp_path / "run", master, tmp_path / "nowhere" / "python")
    assert told.returncode == 255
    assert "a worker has no Python of the name" in told.stderr


def test_a_master_that_does_not_answer_is_said_at_once(tmp_path, capsys):
    run = HistoryBuilder()
    run.traffic(2)
    directory = run.write(tmp_path / "run")
    assert check_history.main([str(directory), "--master", "spark://127.0.0.1:1"]) == 255
    assert "no master answers at spark://127.0.0.1:1" in capsys.readouterr().err
    with pytest.raises(ClusterError, match="write spark://HOST:PORT"):
        find_master("spark://nowhere")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"python": "3.9"}, "the Python of far is 3.9, this one is 3.11"),
        ({"spark": "4.0.1"}, "has Spark 4.0.1, this machine 3.5.9: install pyspark 4.0"),
        ({"unseen": ("/run/a", "/run/b")}, r"does not see /run/a \(and 1 more\) as this machine"),
        ({"read_only": ("/run/verdict",)}, "cannot write into /run/verdict"),
        ({"lacks": ("numpy (ImportError: no)",)}, "cannot import numpy"),
    ],
)
def test_each_thing_that_is_missing_has_words(told, words):
    sound = {"host": "far", "process": 1, "python": "3.11", "executable": "python3"}
    sound |= {"spark": "3.5.1", "lacks": (), "unseen": (), "read_only": ()}
    complain(Worker(**sound), "3.11", "3.5.9")
    with pytest.raises(ClusterError, match=words):
        complain(Worker(**(sound | told)), "3.11", "3.5.9")


def test_the_packages_are_one_zip_that_imports_by_itself(tmp_path, python):
    """Of the whole job, every module; the harness beside it has needs that workers do not meet."""
    archive = pack(tmp_path)
    assert pack(tmp_path) == archive
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]
    names = [name for name in zipfile.ZipFile(archive).namelist() if name.startswith("spark/")]
    modules = [name[:-3].replace("/", ".") for name in names if not name.endswith("__init__.py")]
    pure = [name for name in modules if name in {"spark.segments", "spark.validation"}]
    words = f"import sys; sys.path.insert(1, {str(archive)!r}); import {', '.join(pure)}"
    done = run_elsewhere(tmp_path, python, words)
    assert done.returncode == 0, done.stderr
    assert len(modules) > 40


def test_a_bug_that_ships_half_of_the_code_is_seen(tmp_path, python):
    with planted(HARNESS_BUGS["job-shipped-without-its-data"]):
        archive = shipping.pack(tmp_path)
    words = f"import sys; sys.path.insert(1, {str(archive)!r}); import spark.validation"
    done = run_elsewhere(tmp_path, python, words)
    assert "No module named 'chaos'" in done.stderr


@pytest.mark.parametrize("url", ["s3a://bucket/run", "hdfs://host/run", "file://other/run"])
def test_a_store_that_is_no_file_system_is_refused_with_what_to_do(url, capsys):
    with pytest.raises(SystemExit) as ended:
        check_history.main([url])
    assert ended.value.code == 254
    assert "copy the run into a folder that driver and workers share" in " ".join(
        capsys.readouterr().err.split()
    )
