"""Histograms against what the reference implementation of HdrHistogram (for Python) says of them."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

from groups import histogram
from ndr_latency import curve, decoded, percentiles

# 1 to 10,000 us, one packet each, two digits.
STEADY = 'HISTFAAAADd4nJNpmSzMwMC8kwECmKA0I5icMa3B/gNUgGlkA5YBBhwDDAQGGCgMMHAYYNDASB5UAgAckVMg'
# 50 packets of 12 us, 940 of 20, 9 of 90 and one of 4321.
UNEVEN = 'HISTFAAAACp4nJNpmSzMwMDAzQABTFCaEUzOmNZg/wEiIJ7Ce4Ovk1HoOhcTAI0PBx8='
EMPTY = 'HISTFAAAABt4nJNpmSzMgABMUJoRTM6Y1mD/ASIAAErkBCc='


class Percentiles(unittest.TestCase):
    def test_they_are_those_of_the_reference(self):
        self.assertEqual(percentiles(STEADY), {'p50': 5023, 'p99': 9919, 'p999': 10047})
        self.assertEqual(percentiles(UNEVEN), {'p50': 20, 'p99': 20, 'p999': 90})

    def test_the_stand_in_writes_them_as_they_are_read(self):
        times = {12: 50, 20: 940, 90: 9, 2047: 300}
        self.assertEqual(decoded(histogram(times))[2], sorted(times.items()))
        self.assertEqual(decoded(histogram({}))[2], [])

    def test_a_curve_has_a_step_for_each_time(self):
        self.assertEqual(curve(histogram({20: 99, 90: 1}), 0.9999), [(0.0, 20), (0.99, 20), (0.99, 90), (0.9999, 90)])
        self.assertEqual(curve(EMPTY, 0.9999), [])
        self.assertEqual(curve('no histogram', 0.9999), [])

    def test_what_is_no_histogram_has_none(self):
        for text in (EMPTY, None, '', 'AAAA', 'no histogram', STEADY[:40]):
            self.assertIsNone(percentiles(text), text)


if __name__ == '__main__':
    unittest.main()
