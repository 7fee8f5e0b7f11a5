"""The ledger: sums, limits, and refusal before any noise is drawn."""

import copy
import json
import multiprocessing
import pickle
import time

import numpy as np
import pytest

import jaxprivnb as pnb
from jaxprivnb.privacy import mechanism, sealed
from jaxprivnb.privacy.record import Guarantee

X = np.zeros((4, 2), int)
Y = np.zeros(4, int)
PUBLIC = {"n_categories": 2, "n_classes": 2}


def pure(epsilon, n_tables=1, *relation):
    share = epsilon / n_tables
    scales = (2 / share,) * n_tables
    return Guarantee("epsilon", epsilon, epsilon, (share,) * n_tables, scales, *relation)


def concentrated(rho, *relation):
    return Guarantee("rho", rho, rho, (rho,), (rho**-0.5,), *relation)


def test_ten_tenths_fit_into_one_and_no_more():
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0)
    for _ in range(10):
        ledger.charge(pure(0.1))
    np.testing.assert_allclose(ledger.epsilon_spent, 1.0)
    with pytest.raises(pnb.BudgetExceededError, match=r"cost epsilon 1e-09; 1 of 1 are spent"):
        ledger.charge(pure(1e-9))
    assert len(ledger.entries) == 10
    assert repr(ledger) == "PrivacyLedger(epsilon 1 of 1 spent, 10 releases, replace one record)"


def test_a_rho_limit_takes_both_kinds():
    ledger = pnb.PrivacyLedger(rho_limit=1.0)
    ledger.charge(concentrated(0.5))
    ledger.charge(pure(0.8, n_tables=4))  # 4 tables of 0.2: 4 * 0.02
    np.testing.assert_allclose(ledger.rho_spent, 0.58)
    assert ledger.epsilon_spent == np.inf
    with pytest.raises(pnb.BudgetExceededError, match=r"0.58 of 1 are spent, 0.42 are left"):
        ledger.charge(pure(1.0))


def test_an_epsilon_limit_refuses_what_promises_no_epsilon():
    for ledger in (pnb.PrivacyLedger(epsilon_limit=9), pnb.PrivacyLedger(9, 9)):
        with pytest.raises(pnb.BudgetExceededError, match="promises no epsilon"):
            ledger.charge(concentrated(1e-6))
        assert ledger.entries == ()
    both = pnb.PrivacyLedger(epsilon_limit=5, rho_limit=0.02)
    with pytest.raises(pnb.BudgetExceededError, match="cost rho"):
        both.charge(pure(1.0))


@pytest.mark.parametrize(
    ("own", "other", "epsilon", "rho"),
    [
        (("replace", 1), ("add-remove", 1), 2, 2),
        (("replace", 3), ("replace", 1), 3, 9),
        (("replace", 3), ("add-remove", 1), 6, 18),
        (("replace", 3), ("add-remove", 3), 2, 2),
        (("add-remove", 3), ("add-remove", 1), 3, 9),
    ],
)
def test_other_neighbours_are_charged_what_they_cost_under_the_ledgers(own, other, epsilon, rho):
    relation = dict(zip(("neighbours", "contributions"), own, strict=True))
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0, **relation)
    ledger.charge(pure(0.1, 1, *own))
    ledger.charge(pure(0.1, 1, *other))
    np.testing.assert_allclose(ledger.epsilon_spent, 0.1 + epsilon * 0.1)
    np.testing.assert_allclose(ledger.rho_spent, (0.1**2 + (epsilon * 0.1) ** 2) / 2)
    assert (ledger.entries[1].neighbours, ledger.entries[1].contributions) == other
    assert repr(ledger).endswith(
        "records, 1 converted to it)" if own[1] > 1 else "1 converted to it)"
    )
    with pytest.raises(pnb.BudgetExceededError, match=rf"cost epsilon {epsilon} to .*converted"):
        ledger.charge(pure(1.0, 1, *other))
    by_rho = pnb.PrivacyLedger(rho_limit=100.0, **relation)
    by_rho.charge(concentrated(0.1, *other))
    np.testing.assert_allclose(by_rho.rho_spent, rho * 0.1)


@pytest.mark.parametrize(
    ("own", "other", "message"),
    [
        (("add-remove", 1), ("replace", 1), "publishes N promises nothing"),
        (("add-remove", 3), ("replace", 1), "publishes N promises nothing"),
        (("replace", 1), ("replace", 2), "begin a ledger with contributions=2"),
        (("replace", 1), ("add-remove", 2), "begin a ledger with contributions=2"),
        (("add-remove", 1), ("add-remove", 2), "begin a ledger with contributions=2"),
    ],
)
def test_neighbours_whose_budgets_cannot_be_added_are_refused(own, other, message):
    ledger = pnb.PrivacyLedger(9.0, neighbours=own[0], contributions=own[1])
    with pytest.raises(pnb.BudgetExceededError, match=message):
        ledger.charge(pure(0.1, 1, *other))
    assert ledger.entries == ()


def test_a_ledgers_neighbours_are_in_its_file(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = pnb.PrivacyLedger(1.0, path=path, neighbours="add-remove", contributions=2)
    ledger.charge(pure(0.1, 1, "add-remove", 1))
    back = pnb.PrivacyLedger(path=path)
    assert (back.neighbours, back.contributions) == ("add-remove", 2)
    assert back.entries == ledger.entries
    for given in ({"neighbours": "replace"}, {"contributions": 1}):
        with pytest.raises(ValueError, match="nor do its neighbours"):
            pnb.PrivacyLedger(path=path, **given)
    for given in ({"neighbours": "x"}, {"contributions": 0}, {"contributions": 1.5}):
        with pytest.raises((ValueError, TypeError), match=next(iter(given))):
            pnb.PrivacyLedger(1.0, **given)


def test_a_ledger_from_before_neighbours_replaces_one_record(tmp_path):
    path = tmp_path / "ledger.json"
    entry = {"epsilon": 0.5, "rho": 0.1, "when": ""}
    content = {"epsilon_limit": 1.0, "rho_limit": None, "entries": [entry]}
    path.write_bytes(sealed.seal("jaxprivnb ledger", 1, content))
    ledger = pnb.PrivacyLedger(path=path)
    assert (ledger.neighbours, ledger.contributions) == ("replace", 1)
    assert (ledger.entries[0].neighbours, ledger.entries[0].contributions) == ("replace", 1)
    ledger.charge(pure(0.5))


def test_release_charges_and_a_refusal_draws_no_noise(monkeypatch):
    pytest.importorskip("opendp")
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0)
    pnb.release(X, Y, epsilon_total=0.6, ledger=ledger, **PUBLIC)
    np.testing.assert_allclose(ledger.epsilon_spent, 0.6)

    def drawn(*args):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(mechanism, "_noisy_counts", drawn)
    with pytest.raises(pnb.BudgetExceededError, match=r"0\.4 are left"):
        pnb.release(X, Y, epsilon_total=0.6, ledger=ledger, **PUBLIC)
    with pytest.raises(AssertionError, match="noise was drawn"):  # the trap works
        pnb.release(X, Y, epsilon_total=0.1, ledger=ledger, **PUBLIC)
    np.testing.assert_allclose(ledger.epsilon_spent, 0.7)  # may have been spent: is spent
    with pytest.raises(ValueError, match="feature 'x0'"):  # refused data cost nothing
        pnb.release(X + 5, Y, epsilon_total=0.1, ledger=ledger, **PUBLIC)
    assert len(ledger.entries) == 2


def test_a_release_can_be_charged_afterwards():
    pytest.importorskip("opendp")
    made = pnb.release(X, Y, rho_total=0.5, **PUBLIC)
    ledger = pnb.PrivacyLedger(rho_limit=0.7)
    ledger.charge(made)
    np.testing.assert_allclose(ledger.rho_spent, 0.5)
    with pytest.raises(TypeError, match="charge takes a Release"):
        ledger.charge(0.5)


def test_a_ledger_on_disk_goes_on(tmp_path):
    path = tmp_path / "ledger.json"
    pnb.PrivacyLedger(epsilon_limit=1.0, path=path).charge(pure(0.6))
    ledger = pnb.PrivacyLedger(path=path)
    assert (ledger.epsilon_limit, ledger.rho_limit) == (1.0, None)
    assert ledger.epsilon_spent == 0.6
    with pytest.raises(pnb.BudgetExceededError):
        ledger.charge(pure(0.6))
    # Another process's charge counts, though this object has not seen it.
    pnb.PrivacyLedger(1.0, path=path).charge(pure(0.3))
    with pytest.raises(pnb.BudgetExceededError, match=r"0\.9 of 1"):
        ledger.charge(pure(0.2))
    with pytest.raises(ValueError, match="limits do not change"):
        pnb.PrivacyLedger(epsilon_limit=2.0, path=path)
    with pytest.raises(ValueError, match="limits do not change"):
        pnb.PrivacyLedger(rho_limit=2.0, path=path)
    with pytest.raises(TypeError, match="give epsilon_limit"):
        pnb.PrivacyLedger(path=tmp_path / "new.json")


def test_an_infinite_epsilon_survives_the_file(tmp_path):
    path = tmp_path / "ledger.json"
    pnb.PrivacyLedger(rho_limit=1.0, path=path).charge(concentrated(0.25))
    assert pnb.PrivacyLedger(path=path).entries[0].epsilon == np.inf


def test_a_damaged_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0, path=path)
    ledger.charge(pure(0.6))
    good = path.read_text()
    path.write_text(good.replace("0.6", "0.1"))
    with pytest.raises(ValueError, match="edited or damaged"):
        pnb.PrivacyLedger(path=path)
    with pytest.raises(ValueError, match="edited or damaged"):
        ledger.charge(pure(0.1))
    path.write_text(good[:-9])
    with pytest.raises(ValueError, match=r"ledger\.json"):
        pnb.PrivacyLedger(path=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon_limit": -1}, "epsilon_limit must be above 0"),
        ({"epsilon_limit": None}, "needs a limit"),
        ({"entries": [{"epsilon": -1, "rho": 1, "when": ""}]}, r"entries\[0\] must have costs"),
        ({"entries": [{"epsilon": 1, "rho": 0, "when": ""}]}, r"entries\[0\] must have costs"),
        ({"entries": [{"epsilon": 1, "rho": 1}]}, r"entries\[0\] lacks 'when'"),
        ({"note": 1}, "unknown key 'note'"),
        ({"neighbours": "all"}, "neighbours must be one of"),
        ({"contributions": 0}, "contributions must be at least 1"),
        ({"entries": [{"epsilon": 1, "rho": 1, "when": "", "neighbours": "a"}]}, "neighbours"),
    ],
)
def test_a_forged_ledger_is_refused(tmp_path, change, message):
    path = tmp_path / "ledger.json"
    pnb.PrivacyLedger(epsilon_limit=1.0, path=path)
    content = json.loads(path.read_text())["content"] | change
    path.write_bytes(sealed.seal("jaxprivnb ledger", 1, content))
    with pytest.raises(ValueError, match=message):
        pnb.PrivacyLedger(path=path)


@pytest.mark.parametrize("limits", [(0,), (-1,), (np.nan,), (None, 0)])
def test_limits_must_be_positive(limits):
    with pytest.raises(ValueError, match="_limit must be in"):
        pnb.PrivacyLedger(*limits)


def _charge_often(path, barrier):
    real = sealed.write

    def slowly(*args):  # between reading and writing, where a lost update would happen
        time.sleep(0.02)
        real(*args)

    sealed.write = slowly
    ledger = pnb.PrivacyLedger(path=path)
    barrier.wait()
    for _ in range(5):
        ledger.charge(pure(0.01))


def test_processes_share_a_file(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "ledger.json"
    pnb.PrivacyLedger(epsilon_limit=1.0, path=path)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2, timeout=120)
    workers = [context.Process(target=_charge_often, args=(path, barrier)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0, 0]
    assert len(pnb.PrivacyLedger(path=path).entries) == 10


def test_a_copy_is_the_same_account(tmp_path):
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0)
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy({"ledger": [ledger]})["ledger"][0] is ledger
    with pytest.raises(TypeError, match="Give it a path"):
        pickle.dumps(ledger)
    kept = pnb.PrivacyLedger(epsilon_limit=1.0, path=tmp_path / "ledger.json")
    other = pickle.loads(pickle.dumps(kept))
    other.charge(pure(0.6))
    with pytest.raises(pnb.BudgetExceededError):
        kept.charge(pure(0.6))


def test_a_ledger_reached_through_a_link_is_spent_once(tmp_path):
    path, link = tmp_path / "ledger.json", tmp_path / "link.json"
    first = pnb.PrivacyLedger(epsilon_limit=1.0, path=path)
    link.symlink_to(path)
    second = pnb.PrivacyLedger(path=link)
    second.charge(pure(0.6))
    assert link.is_symlink()
    with pytest.raises(pnb.BudgetExceededError):
        first.charge(pure(0.6))
    folder = tmp_path / "folder"
    folder.symlink_to(tmp_path)
    with pytest.raises(pnb.BudgetExceededError):
        pnb.PrivacyLedger(path=folder / "link.json").charge(pure(0.6))
    assert {p.name for p in tmp_path.glob("*.lock")} == {"ledger.json.lock"}


def test_a_link_to_a_ledger_that_is_yet_to_come_begins_it(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "ledger.json")
    pnb.PrivacyLedger(1.0, path=tmp_path / "link.json").charge(pure(0.6))
    assert pnb.PrivacyLedger(path=tmp_path / "ledger.json").epsilon_spent == 0.6


def test_a_ledger_with_two_names_of_its_own_is_refused(tmp_path):
    path, other = tmp_path / "ledger.json", tmp_path / "other.json"
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0, path=path)
    other.hardlink_to(path)
    for charge in (lambda: ledger.charge(pure(0.6)), lambda: pnb.PrivacyLedger(path=other)):
        with pytest.raises(ValueError, match="more than one name"):
            charge()
    other.unlink()
    ledger.charge(pure(0.6))


def test_a_ledger_whose_file_became_a_link_is_refused(tmp_path):
    path, moved = tmp_path / "ledger.json", tmp_path / "moved.json"
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0, path=path)
    path.rename(moved)
    path.symlink_to(moved)
    with pytest.raises(ValueError, match="has become a link"):
        ledger.charge(pure(0.6))
    assert path.is_symlink()
    assert pnb.PrivacyLedger(path=path).entries == ()


def test_a_relative_ledger_survives_a_change_of_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0, path="ledger.json")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ledger.charge(pure(0.6))
    assert pnb.PrivacyLedger(path=tmp_path / "ledger.json").epsilon_spent == 0.6
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_private_ledger_stays_private(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0, path=path)
    path.chmod(0o600)
    ledger.charge(pure(0.6))
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_lock_is_not_opened_through_a_link(tmp_path):
    pytest.importorskip("fcntl")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "ledger.json.lock").symlink_to(victim)
    with pytest.raises(OSError, match=r"ledger\.json\.lock"):
        pnb.PrivacyLedger(epsilon_limit=1.0, path=tmp_path / "ledger.json")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("epsilon", [-5.0, 0.0, np.nan, np.inf])
def test_a_charge_that_gives_budget_back_is_refused(epsilon):
    ledger = pnb.PrivacyLedger(epsilon_limit=1.0, rho_limit=5.0)
    ledger.charge(pure(0.9))
    free = Guarantee("epsilon", epsilon, epsilon, (1.0,), (2.0,))
    for spent in (free, Guarantee("rho", epsilon, epsilon, (1.0,), (2.0,))):
        with pytest.raises(ValueError, match="finite and above 0"):
            ledger.charge(spent)
    assert ledger.epsilon_spent == 0.9
