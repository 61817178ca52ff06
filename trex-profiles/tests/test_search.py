"""The verdict and the search, against generators and devices with known properties."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from ndr_search import FAIL, LIMITED, PASS, VOID, Counters, Trial, confirm, search


def bench(capacity=1e9, ceiling=1e9, ring=1e9, lose=0.0, stuck=0, extra=0, seconds=10):
    """A trial on a bench whose device forwards `capacity` a second and loses a share `lose`; the generator sends at most
    `ceiling` a second, and its receiving ring overflows above `ring`."""
    def trial(rate):
        sent = int(rate * seconds)
        took = sent / min(rate, ceiling)
        offered = sent / took
        arrived = int(sent * min(1.0, capacity / offered) * (1 - lose)) - stuck + extra
        overflow = max(0, int((offered - ring) * seconds))
        return Trial(rate, Counters(sent, arrived - overflow, overflow, 0, sent, took))
    return trial


class Verdict(unittest.TestCase):
    def verdict(self, allowed=0.0, **properties):
        return bench(**properties)(100_000).verdict(allowed)

    def test_nothing_lost_passes(self):
        self.assertEqual(self.verdict(), PASS)

    def test_one_in_a_thousand_lost_is_found(self):
        self.assertEqual(self.verdict(lose=0.001), FAIL)
        self.assertEqual(self.verdict(lose=0.001, allowed=0.005), PASS)

    def test_a_packet_that_stays_in_the_ring_is_lost(self):
        self.assertEqual(self.verdict(stuck=1), FAIL)

    def test_an_overloaded_generator_is_not_the_devices_rate(self):
        self.assertEqual(self.verdict(ceiling=90_000), LIMITED)
        self.assertEqual(self.verdict(ceiling=90_000, lose=0.5), LIMITED)

    def test_what_the_generator_lost_itself_is_void(self):
        self.assertEqual(self.verdict(ring=50_000), VOID)

    def test_more_than_was_sent_is_void(self):
        self.assertEqual(self.verdict(extra=1), VOID)

    def test_counters_that_went_backwards_are_void(self):
        self.assertEqual(Trial(1000, Counters(10_000, -6_000, 0, 0, 10_000, 10.0)).verdict(0.0), VOID)
        self.assertEqual(Trial(1000, Counters(-10, -10, 0, 0, 10_000, 10.0)).verdict(0.0), VOID)

    def test_a_start_that_was_refused_is_void(self):
        self.assertEqual(Trial(1000, Counters(0, 0, 0, 0, 0, 1.0)).verdict(0.0), VOID)


class Search(unittest.TestCase):
    def test_the_devices_capacity_is_found_from_below(self):
        found = search(bench(capacity=123_456), 1000, 1_000_000, 0.0)
        self.assertEqual(found.above, 'device')
        self.assertLessEqual(found.rate, 123_456)
        self.assertGreater(found.rate, 123_456 * 0.97)
        self.assertIn('pps', found.text())
        self.assertNotIn('>=', found.text())

    def test_a_share_may_be_lost(self):
        ndr = search(bench(capacity=100_000, lose=0.002), 1000, 1_000_000, 0.0)
        pdr = search(bench(capacity=100_000, lose=0.002), 1000, 1_000_000, 0.005, known=ndr.trials)
        self.assertEqual((ndr.rate, ndr.text()), (0.0, 'below the minimum'))
        self.assertGreater(pdr.rate, 97_000)

    def test_a_search_that_ends_at_the_generator_says_so(self):
        found = search(bench(capacity=500_000, ceiling=200_000), 1000, 1_000_000, 0.0)
        self.assertEqual(found.above, 'generator')
        self.assertLessEqual(found.rate, 200_000 / 0.97)
        self.assertIn('generator-limited', found.text())

    def test_the_highest_rate_that_was_asked_for_is_a_lower_bound(self):
        found = search(bench(), 1000, 50_000, 0.0)
        self.assertEqual((found.rate, found.above, len(found.trials)), (50_000, 'maximum', 1))
        self.assertIn('>= 50000', found.text())

    def test_void_trials_are_repeated_once_and_counted(self):
        found = search(bench(ring=80_000), 1000, 1_000_000, 0.0)
        self.assertEqual(found.above, 'void')
        self.assertLessEqual(found.rate, 80_000)
        self.assertEqual(found.voids % 2, 0)
        self.assertGreater(found.voids, 0)

    def test_a_void_trial_that_passes_when_it_is_repeated_counts(self):
        voids = iter([True])
        good = bench()

        def trial(rate):
            return bench(ring=1)(rate) if next(voids, False) else good(rate)
        found = search(trial, 1000, 50_000, 0.0)
        self.assertEqual((found.rate, found.voids), (50_000, 1))

    def test_a_void_trial_at_the_lowest_rate_is_repeated_and_then_bisected_above(self):
        for voids in (1, 2):
            good, left = bench(capacity=100_000), [voids]

            def trial(rate):
                if rate == 1000 and left[0]:
                    left[0] -= 1
                    return bench(extra=1)(rate)
                return good(rate)
            found = search(trial, 1000, 1_000_000, 0.0)
            self.assertEqual((found.above, found.voids), ('device', voids))
            self.assertTrue(97_000 < found.rate <= 100_000, found.rate)
            again = search(good, 1000, 1_000_000, 0.005, known=found.trials)
            self.assertTrue(97_000 < again.rate <= 101_000, again.rate)

    def test_void_at_every_rate_is_not_found(self):
        found = search(bench(extra=1), 1000, 1_000_000, 0.0)
        self.assertEqual((found.rate, found.above), (0.0, 'void'))
        self.assertIn('not found', found.text())

    def test_what_another_search_tried_is_not_tried_again(self):
        ndr = search(bench(capacity=100_000), 1000, 1_000_000, 0.0)
        again = search(bench(capacity=100_000), 1000, 1_000_000, 0.0, known=ndr.trials)
        self.assertEqual((again.rate, again.trials), (ndr.rate, []))

    def test_nothing_works(self):
        found = search(bench(capacity=1), 1000, 10_000, 0.0)
        self.assertEqual((found.rate, found.above), (0.0, 'device'))

    def test_rates_must_make_sense(self):
        for lowest, highest in ((0, 10), (20, 10), (-1, 5)):
            with self.assertRaises(ValueError):
                search(bench(), lowest, highest, 0.0)


class Confirm(unittest.TestCase):
    def test_a_longer_trial_may_find_less(self):
        found = search(bench(capacity=100_000), 1000, 1_000_000, 0.0)
        confirmed = confirm(found, bench(capacity=97_000, seconds=60), 0.0)
        self.assertTrue(confirmed.confirmed)
        self.assertLessEqual(confirmed.rate, 97_000)

    def test_what_never_passes_is_not_confirmed(self):
        found = search(bench(capacity=100_000), 1000, 1_000_000, 0.0)
        lost = confirm(found, bench(capacity=10), 0.0)
        self.assertFalse(lost.confirmed)
        self.assertIn('not confirmed', lost.text())

    def test_the_rate_is_what_was_offered(self):
        found = search(bench(ceiling=100_000), 1000, 1_000_000, 0.0)
        self.assertGreater(found.rate, 100_000)
        self.assertEqual(confirm(found, bench(ceiling=100_000), 0.0).text(), '>= 100000 pps (generator-limited)')


if __name__ == '__main__':
    unittest.main()
