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

    def test_the_lab_has_the_ports_addresses_and_files_of_its_configuration(self):
        folder = os.path.join(PROFILES, 'clab')
        with open(os.path.join(folder, 'srv6d-trex.clab.yml')) as file:
            topology = yaml.safe_load(file)['topology']
        with open(os.path.join(PROFILES, 'trex_cfg_clab.yaml')) as file:
            [configuration] = yaml.safe_load(file)
        self.assertEqual([link['endpoints'] for link in topology['links']],
                         [['trex:eth1', 'dut:eth1'], ['trex:eth2', 'dut:eth2']])
        for number, (interface, port) in enumerate(zip(configuration['interfaces'], configuration['port_info']), 1):
            self.assertIn('iface=eth%d,' % number, interface)
            for node, address in (('trex', port['src_mac']), ('dut', port['dest_mac'])):
                self.assertIn('ip link set eth%d address %s' % (number, address), topology['nodes'][node]['exec'])
        for node in topology['nodes'].values():
            for bind in node['binds']:
                self.assertTrue(os.path.exists(os.path.join(folder, bind.split(':')[0])), bind)


if __name__ == '__main__':
    unittest.main()
