"""The trex_cfg_*.yaml files: what TRex and AF_PACKET ask of their rings, and the addresses that dut/srv6d.toml expects."""

import glob
import os
import re
import tomllib
import unittest

import yaml

PROFILES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = 4096


class Configurations(unittest.TestCase):
    def files(self):
        found = sorted(glob.glob(os.path.join(PROFILES, 'trex_cfg_*.yaml')))
        self.assertEqual(len(found), 4)
        for path in found:
            with open(path) as file, self.subTest(os.path.basename(path)):
                [configuration] = yaml.safe_load(file)
                yield configuration

    def test_rings_are_whole_pages_and_whole_frames(self):
        for configuration in self.files():
            for port in configuration['interfaces']:
                block, frame, count = (int(re.search(name + r'=(\d+)', port).group(1)) for name in ('blocksz', 'framesz', 'framecnt'))
                self.assertEqual((block % PAGE, block % frame), (0, 0))
                self.assertGreaterEqual(count, 4096, 'a short ring loses packets that srv6d did not')

    def test_the_far_ends_are_those_of_the_device_under_test(self):
        with open(os.path.join(PROFILES, 'dut/srv6d.toml'), 'rb') as file:
            neighbors = [one['mac'] for one in tomllib.load(file)['neighbor']]
        for configuration in self.files():
            self.assertEqual([port['src_mac'] for port in configuration['port_info']], neighbors)
            self.assertEqual(len({port['dest_mac'] for port in configuration['port_info']}), 2)

    def test_a_core_has_one_busy_thread(self):
        for configuration in self.files():
            if configuration.get('low_end'):
                self.assertNotIn('platform', configuration)
                continue
            platform = configuration['platform']
            cores = [platform['master_thread_id'], platform['latency_thread_id'], *platform['dual_if'][0]['threads']]
            self.assertEqual(len(cores), len(set(cores)))


if __name__ == '__main__':
    unittest.main()
