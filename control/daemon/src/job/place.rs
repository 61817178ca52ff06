//! Places a whole job on a topology, beside the jobs that are known. It may take seconds, and runs on a thread of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv6Addr;

use ipnet::IpNet;
use serde_json::Value;
use srv6d_controller::compose::{Options, compose};
use srv6d_controller::document::{Topology as Sids, Vertex};
use srv6d_controller::sid::Family;
use srv6d_job::{
    CheckedJob, Code, HostFlow, Job, MOST_PATHS, Occupancy, PhaseLoad, Placement, RankPath, RankPaths, Refused,
    Replaces, Share, fingerprint, flows,
};
use srv6d_placement::{
    Again, Carried, Changed, Constraints, Demand, Fabric, Flow, LinkId, NodeId, NodeKind, PerLink, PhaseLoads, Phased,
    PlaceError, Ratio, Tenant, busiest_beside, place_again, place_beside, place_phases, sids,
};

/// Most links of another job that are named as shared. All of them count.
const NAMED_LINKS: usize = 64;
/// Families inside of packets, in the order of lists that have an entry for each.
const FAMILIES: [Family; 2] = [Family::V6, Family::V4];

/// What a job is placed on.
#[derive(Debug)]
pub struct Ground {
    /// The topology, as JSON.
    pub document: Value,
    /// Functions of the last node for IPv6 and IPv4 inside, if no SID provides one.
    pub functions: [Option<u16>; 2],
}

impl Ground {
    /// Returns a number that differs, as far as can be told, between topologies on which a job may be placed otherwise: of nodes
    /// and links, whether they are up, capacities, and SIDs.
    ///
    /// # Errors
    /// The document is no topology.
    pub fn state(&self) -> Result<u64, Refused> {
        let mut document = self.document.clone();
        leave_out_loose_edges(&mut document);
        let fabric = Fabric::from_topology(&document).map_err(|why| failed(&why))?;
        let mut hash = DefaultHasher::new();
        for (_, node) in fabric.nodes() {
            (&node.id, node.up, &node.plane).hash(&mut hash);
        }
        for (_, link) in fabric.links() {
            (&link.key, &fabric.node(link.from).id, &fabric.node(link.to).id, link.up, link.capacity).hash(&mut hash);
        }
        if let Some(sids) = sids(&document) {
            sids.vertices.hash(&mut hash);
            for edge in &sids.edges {
                (&edge.from, &edge.to, &edge.key, &edge.sids).hash(&mut hash);
            }
        }
        self.functions.hash(&mut hash);
        Ok(hash.finish())
    }
}

/// An earlier placement of a job, whose paths stay as far as they can.
#[derive(Debug)]
pub struct Earlier {
    /// Its generation.
    pub generation: u64,
    /// Paths of ranks. Ranks of one host have the same.
    pub ranks: Vec<RankPaths>,
}

/// How paths that are in force fit a topology.
#[derive(Debug, PartialEq)]
pub struct Fit {
    /// What would change if the job were placed again.
    pub replaces: Replaces,
    /// Name of a link that a path takes and that is gone.
    pub gone: Option<String>,
    /// True if a path is gone because its carriers would be others now.
    pub is_renumbered: bool,
    /// Load per capacity of the busiest link as it is, without the flows whose paths are gone.
    pub before: f64,
    /// The same after a placement.
    pub after: f64,
}

/// A job that was placed, with the paths of all its ranks.
#[derive(Debug)]
pub struct Whole {
    /// The job.
    pub job: CheckedJob,
    /// What everybody knows of the placement.
    pub placement: Placement,
    /// Number of each rank's host.
    host_of: Vec<usize>,
    /// Addresses of each host, and its lowest rank.
    hosts: Vec<(u32, Vec<IpNet>)>,
    /// For each host that sends: the host that receives, and the ways for IPv6 and IPv4 inside.
    ways_of: Vec<Vec<(usize, [Option<u32>; 2])>>,
    /// Carriers with the switches that they cross. Many pairs of hosts have the same.
    ways: Vec<Way>,
    /// The jobs beside which it was placed.
    pub others: Vec<Occupancy>,
    /// Ids of those that had ranks at the daemon that placed it. The others were handed over.
    pub here: BTreeSet<String>,
    /// How the earlier placement fits, if there is one.
    pub fit: Option<Fit>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Way {
    segments: Vec<Ipv6Addr>,
    via: Vec<String>,
}

impl Whole {
    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.host_of.len()
    }

    /// Returns the paths of a rank.
    pub fn of_rank(&self, rank: u32) -> RankPaths {
        let host = self.host_of.get(rank as usize).copied();
        let ways = host.and_then(|host| self.ways_of.get(host)).map_or(&[][..], Vec::as_slice);
        let mut paths = Vec::new();
        for (to, by_family) in ways {
            let Some((lowest, prefixes)) = self.hosts.get(*to) else { continue };
            for prefix in prefixes {
                let [v6, v4] = by_family;
                let way = if matches!(prefix, IpNet::V6(_)) { v6 } else { v4 };
                let Some(way) = way.and_then(|way| self.ways.get(way as usize)) else { continue };
                let Way { segments, via } = way.clone();
                paths.push(RankPath { to: *lowest, prefix: *prefix, segments, via });
            }
        }
        RankPaths { rank, paths }
    }

    /// Returns the placement as one that a later one may take the place of. One rank of each host is enough.
    pub fn as_earlier(&self) -> Earlier {
        let ranks = self.hosts.iter().map(|(lowest, _)| self.of_rank(*lowest)).collect();
        Earlier { generation: self.placement.generation, ranks }
    }

    /// Returns the other jobs that were handed over.
    pub fn handed(&self) -> Vec<Occupancy> {
        self.others.iter().filter(|other| !self.here.contains(&other.id)).cloned().collect()
    }

    fn ranks(&self) -> impl Iterator<Item = u32> {
        0..u32::try_from(self.size()).unwrap_or(u32::MAX)
    }
}

fn cannot(why: impl std::fmt::Display) -> Refused {
    Refused::new(Code::CannotPlace, why.to_string())
}

fn failed(why: &dyn std::fmt::Display) -> Refused {
    Refused::new(Code::TopologyFailed, format!("the topology: {why}"))
}

/// Places a job, beside other jobs and close to an earlier placement if there is one. Equal arguments have equal results.
///
/// # Errors
/// `topology_failed`, `cannot_place`, `invalid_job` or `too_large`, with the fix.
pub fn place(job: Job, others: Vec<Occupancy>, ground: Ground, earlier: Option<&Earlier>) -> Result<Whole, Refused> {
    let job = CheckedJob::new(job)?;
    let Ground { mut document, functions } = ground;
    leave_out_loose_edges(&mut document);
    let fabric = Fabric::from_topology(&document).map_err(|why| failed(&why))?;
    let sids = sids(&document).ok_or_else(|| failed(&"its SIDs cannot be read; compare with docs/path-server.md"))?;
    drop(document);
    let Hosts { of_rank, nodes, known } = hosts(&job, &fabric)?;
    let mut phases = flows(job.job(), &of_rank)?;
    phases.retain(|flows| !flows.is_empty());
    let mut whole = Whole {
        placement: nothing(&job),
        host_of: of_rank,
        hosts: known,
        ways_of: vec![Vec::new(); nodes.len()],
        ways: Vec::new(),
        others,
        here: BTreeSet::new(),
        fit: None,
        job,
    };
    if !phases.is_empty() {
        place_flows(&mut whole, &phases, &nodes, earlier, &fabric, (&sids, functions))?;
    }
    let mut most = 0;
    let ranks = whole.ranks().map(|rank| {
        let of_rank = whole.of_rank(rank);
        most = most.max(of_rank.paths.len());
        of_rank
    });
    let number = fingerprint(&whole.placement.digest, ranks);
    whole.placement.number = number;
    if most > MOST_PATHS {
        let why =
            format!("a rank has {most} paths, at most {MOST_PATHS}: leave out members, or choose another pattern");
        return Err(Refused::new(Code::TooLarge, why));
    }
    Ok(whole)
}

/// Returns the placement of a job that sends nothing over the fabric.
fn nothing(job: &CheckedJob) -> Placement {
    Placement {
        job: job.job().id.clone(),
        generation: job.job().generation,
        digest: job.digest().to_owned(),
        number: String::new(),
        bound: 0.0,
        busiest: 0.0,
        busiest_link: None,
        phases: Vec::new(),
        links: Vec::new(),
        shares: Vec::new(),
        replaces: None,
    }
}

/// Removes edges to vertices that a controller does not show. A live Jalapeno has such edges.
fn leave_out_loose_edges(document: &mut Value) {
    let Some(vertices) = document.get("vertices").and_then(Value::as_object) else { return };
    let is_known = |edge: &Value| {
        let end = |key: &str| edge.get(key).and_then(Value::as_str).is_some_and(|id| vertices.contains_key(id));
        end("_from") && end("_to")
    };
    let Some(edges) = document.get("edges").and_then(Value::as_array) else { return };
    let kept: Vec<Value> = edges.iter().filter(|edge| is_known(edge)).cloned().collect();
    if let Some(edges) = document.get_mut("edges") {
        *edges = Value::Array(kept);
    }
}

/// The hosts of a job, numbered in the order of their lowest ranks.
struct Hosts {
    /// Number of each rank's host.
    of_rank: Vec<usize>,
    nodes: Vec<NodeId>,
    /// The lowest rank of each host, and its addresses.
    known: Vec<(u32, Vec<IpNet>)>,
}

fn hosts(job: &CheckedJob, fabric: &Fabric) -> Result<Hosts, Refused> {
    let names = Names::of(fabric);
    let size = u32::try_from(job.job().members.len()).unwrap_or(u32::MAX);
    let mut numbers: HashMap<NodeId, usize> = HashMap::new();
    let mut found = Hosts { of_rank: Vec::new(), nodes: Vec::new(), known: Vec::new() };
    let mut written: Vec<&str> = Vec::new();
    for member in (0..size).filter_map(|rank| job.member(rank)) {
        let node = names.host(&member.host, &format!("rank {}", member.rank), fabric)?;
        let next = found.nodes.len();
        let number = *numbers.entry(node).or_insert(next);
        if number == next {
            found.nodes.push(node);
            found.known.push((member.rank, Vec::new()));
            written.push(&member.host);
        }
        if let Some(other) = written.get(number).filter(|other| **other != member.host) {
            let why = format!("{} and {other} are one host of the topology: write the same name for it", member.host);
            return Err(cannot(why));
        }
        found.of_rank.push(number);
        if let Some((_, prefixes)) = found.known.get_mut(number) {
            prefixes.extend(member.addresses.iter().map(|address| address.0));
            prefixes.sort_unstable();
            prefixes.dedup();
        }
    }
    Ok(found)
}

/// Nodes of a fabric by all that they are called.
struct Names<'f> {
    by_id: HashMap<&'f str, NodeId>,
    by_name: HashMap<&'f str, NodeId>,
}

impl<'f> Names<'f> {
    fn of(fabric: &'f Fabric) -> Self {
        let mut names = Self { by_id: HashMap::new(), by_name: HashMap::new() };
        for (id, node) in fabric.nodes() {
            names.by_id.insert(&node.id, id);
            names.by_name.entry(&node.name).or_insert(id);
            if let Some((_, key)) = node.id.split_once('/') {
                names.by_name.entry(key).or_insert(id);
            }
        }
        names
    }

    fn node(&self, name: &str, kind: NodeKind, place: &str, fabric: &Fabric) -> Result<NodeId, Refused> {
        let what = if kind == NodeKind::Host { "host" } else { "switch" };
        let found = self.by_id.get(name).or_else(|| self.by_name.get(name)).copied();
        found.filter(|node| fabric.node(*node).kind == kind).ok_or_else(|| {
            let of_kind = fabric.nodes().filter(|(_, node)| node.kind == kind).map(|(_, node)| node.name.as_str());
            let some: Vec<&str> = of_kind.take(3).collect();
            cannot(format!("{place}: the topology has no {what} {name:?}: names are like {}", some.join(", ")))
        })
    }

    fn host(&self, name: &str, place: &str, fabric: &Fabric) -> Result<NodeId, Refused> {
        self.node(name, NodeKind::Host, place, fabric)
    }
}

fn constraints(job: &Job, nodes: &[NodeId], fabric: &Fabric) -> Result<Constraints, Refused> {
    let base = Constraints { detour: job.detour, seed: job.seed, ..Constraints::default() };
    if job.spines.is_empty() && job.planes.is_empty() {
        return Ok(base);
    }
    let names = Names::of(fabric);
    let spine = |name: &String| names.node(name, NodeKind::Switch, "spines", fabric);
    let spines = job.spines.iter().map(spine).collect::<Result<_, _>>()?;
    for plane in &job.planes {
        if !fabric.nodes().any(|(_, node)| node.plane.as_ref() == Some(plane)) {
            return Err(cannot(format!("planes: no switch of the topology is of plane {plane:?}")));
        }
    }
    let tenant = Tenant { name: job.id.clone(), hosts: nodes.to_vec(), spines, planes: job.planes.clone() };
    Ok(Constraints { tenants: vec![tenant], ..base })
}

fn place_flows(
    whole: &mut Whole,
    phases: &[Vec<HostFlow>],
    nodes: &[NodeId],
    earlier: Option<&Earlier>,
    fabric: &Fabric,
    (sids, functions): (&Sids, [Option<u16>; 2]),
) -> Result<(), Refused> {
    let constraints = constraints(whole.job.job(), nodes, fabric)?;
    let node = |host: usize| nodes.get(host).copied().ok_or_else(|| cannot("a host has no number"));
    let demand = |flows: &Vec<HostFlow>| {
        let flow = |HostFlow { from, to, demand }: &HostFlow| {
            Ok(Flow { source: node(*from)?, destination: node(*to)?, demand: *demand, tenant: None })
        };
        let flows = flows.iter().map(flow).collect::<Result<_, Refused>>()?;
        Ok(Demand { flows })
    };
    let demands = phases.iter().map(demand).collect::<Result<Vec<_>, Refused>>()?;
    let carried = carried(whole, fabric);
    let flows = pairs(phases);
    let walks = earlier.map(|earlier| (earlier, Walks::of(earlier, whole, &flows, nodes, fabric, (sids, functions))));
    let placed = match (demands.as_slice(), &walks) {
        ([demand], None) => Placed::of(fabric, demand, place_beside(fabric, demand, &constraints, &carried)),
        ([demand], Some((_, walks))) => {
            let again = place_again(fabric, demand, &constraints, &carried, &walks.links).map_err(cannot)?;
            let Again { placement, moved, lost, before } = again;
            let changed = Some(Changed { moved: moved.len(), lost, before });
            Placed::of(fabric, demand, Ok(placement)).map(|placed| Placed { changed, ..placed })
        }
        (_, walks) => {
            let ends = |flow: &HostFlow| Some((*nodes.get(flow.from)?, *nodes.get(flow.to)?));
            let known = walks.as_ref().map(|(_, walks)| {
                let known = flows.iter().zip(&walks.links);
                known.filter_map(|(flow, links)| Some((ends(flow)?, links.clone()?))).collect::<BTreeMap<_, _>>()
            });
            let found = place_phases(fabric, &demands, &constraints, &carried, known.as_ref());
            found.map(|found| Placed::of_phases(fabric, found, &flows, &ends))
        }
    };
    let placed = placed.map_err(cannot)?;
    let after = describe(&mut whole.placement, fabric, &placed.loads, &carried, &whole.others);
    whole.placement.bound = placed.bound.value();
    whole.placement.phases = placed.phases;
    if let (Some((earlier, walks)), Some(Changed { moved, lost, before })) = (walks, placed.changed) {
        let replaces = Replaces { generation: earlier.generation, flows: flows.len(), moved, lost };
        whole.placement.replaces = Some(replaces);
        let Walks { gone, is_renumbered, .. } = walks;
        whole.fit = Some(Fit { replaces, gone, is_renumbered, before: before.value(), after });
    }
    compose_all(whole, &flows, &placed.links, fabric, (sids, functions))
}

/// Returns the load of other jobs.
fn carried(whole: &Whole, fabric: &Fabric) -> Carried {
    let links: HashMap<&str, LinkId> = fabric.links().map(|(id, link)| (link.key.as_str(), id)).collect();
    let mut carried = Carried::nothing(fabric);
    for other in &whole.others {
        for (key, load) in &other.links {
            // A link that is no longer there carries nothing.
            let Some(link) = links.get(key.as_str()) else { continue };
            carried.all[*link] = carried.all[*link].saturating_add(*load);
            if other.priority >= whole.job.job().priority {
                carried.respected[*link] = carried.respected[*link].saturating_add(*load);
            }
        }
    }
    carried
}

/// Returns the pairs of hosts that send in any phase, each with its highest demand, ordered by sender and receiver.
fn pairs(phases: &[Vec<HostFlow>]) -> Vec<HostFlow> {
    if let [flows] = phases {
        return flows.clone();
    }
    let mut pairs: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for HostFlow { from, to, demand } in phases.iter().flatten() {
        let highest = pairs.entry((*from, *to)).or_default();
        *highest = (*highest).max(*demand);
    }
    pairs.into_iter().map(|((from, to), demand)| HostFlow { from, to, demand }).collect()
}

/// What a placement comes to, for one phase or several.
struct Placed {
    /// Links of each pair of hosts.
    links: Vec<Vec<LinkId>>,
    /// Load of each link, in the phase in which it is highest.
    loads: PerLink<u64>,
    bound: Ratio,
    phases: Vec<PhaseLoad>,
    changed: Option<Changed>,
}

impl Placed {
    fn of(
        fabric: &Fabric,
        demand: &Demand,
        placed: Result<srv6d_placement::Placement, PlaceError>,
    ) -> Result<Self, PlaceError> {
        let srv6d_placement::Placement { paths, bound, .. } = placed?;
        let links = (0..demand.flows.len()).map(|flow| paths.links(fabric, demand, flow)).collect();
        Ok(Self { links, loads: paths.loads(fabric, demand), bound, phases: Vec::new(), changed: None })
    }

    fn of_phases(
        fabric: &Fabric,
        found: Phased,
        flows: &[HostFlow],
        ends: &impl Fn(&HostFlow) -> Option<(NodeId, NodeId)>,
    ) -> Self {
        let mut known: HashMap<(NodeId, NodeId), Vec<LinkId>> = found.pairs.into_iter().zip(found.links).collect();
        let links = flows.iter().map(|flow| ends(flow).and_then(|ends| known.remove(&ends)).unwrap_or_default());
        let mut loads = PerLink::new(fabric.link_count(), 0_u64);
        for (link, load) in found.phases.iter().flat_map(|phase| phase.loads.iter()) {
            loads[link] = loads[link].max(*load);
        }
        let bound = found.phases.iter().map(|phase| phase.bound).max().unwrap_or(Ratio::ZERO);
        let of = |phase: &PhaseLoads| PhaseLoad { bound: phase.bound.value(), busiest: phase.busiest.value() };
        let phases = found.phases.iter().map(of).collect();
        Self { links: links.collect(), loads, bound, phases, changed: found.changed }
    }
}

/// The links that flows take by an earlier placement.
struct Walks {
    /// For each flow, its links from host to host. `None`: there are no such links any more.
    links: Vec<Option<Vec<LinkId>>>,
    /// Name of the first link that is not there, or not up.
    gone: Option<String>,
    /// True if a path has other carriers than the topology would give it now.
    is_renumbered: bool,
}

/// What an earlier placement says of a pair of hosts.
struct Written<'e> {
    via: &'e [String],
    /// Carriers for IPv6 and IPv4 inside.
    segments: [Option<&'e [Ipv6Addr]>; 2],
}

impl Walks {
    fn of(
        earlier: &Earlier,
        whole: &Whole,
        flows: &[HostFlow],
        nodes: &[NodeId],
        fabric: &Fabric,
        (sids, functions): (&Sids, [Option<u16>; 2]),
    ) -> Self {
        let mut ways: HashMap<(usize, usize), Written<'_>> = HashMap::new();
        for RankPaths { rank, paths } in &earlier.ranks {
            for path in paths {
                let ends = [*rank, path.to].map(|rank| whole.host_of.get(rank as usize));
                if let [Some(from), Some(to)] = ends {
                    let way = Written { via: &path.via, segments: [None; 2] };
                    let [v6, v4] = &mut ways.entry((*from, *to)).or_insert(way).segments;
                    let segments = if matches!(path.prefix, IpNet::V6(_)) { v6 } else { v4 };
                    segments.get_or_insert(&path.segments);
                }
            }
        }
        let names = Names::of(fabric);
        let mut walks = Self { links: Vec::with_capacity(flows.len()), gone: None, is_renumbered: false };
        // Carriers that are no longer those of the walk may lead nowhere.
        let holds = |walk: &[NodeId], way: &Written<'_>| {
            let vertices = vertices(walk, fabric, sids);
            FAMILIES.into_iter().zip(functions).zip(way.segments).all(|((family, function), segments)| {
                let composed = |segments: &[Ipv6Addr]| {
                    let options = Options { algo: 0, family, strict: false, function };
                    compose(vertices.as_ref()?, sids, &options).ok().filter(|found| found.segments == segments)
                };
                segments.is_none_or(|segments| composed(segments).is_some())
            })
        };
        // Of parallel links, which carriers do not tell apart, flows take the one with the least load so far.
        let mut loads = PerLink::new(fabric.link_count(), 0_u64);
        for flow in flows {
            let ends = [nodes.get(flow.from).copied(), nodes.get(flow.to).copied()];
            let way = ways.get(&(flow.from, flow.to));
            let walk = way.zip(ends[0].zip(ends[1])).and_then(|(way, (from, to))| {
                let via = way.via.iter().map(|name| names.by_name.get(name.as_str()).copied());
                [Some(from)].into_iter().chain(via).chain([Some(to)]).collect::<Option<Vec<NodeId>>>()
            });
            let links = walk.as_deref().and_then(|walk| {
                walk.windows(2).map(|step| walks.step(step, &loads, fabric)).collect::<Option<Vec<LinkId>>>()
            });
            let is_right = walk.as_deref().zip(way).is_some_and(|(walk, way)| holds(walk, way));
            walks.is_renumbered |= links.is_some() && !is_right;
            let links = links.filter(|_| is_right);
            for link in links.iter().flatten() {
                loads[*link] = loads[*link].saturating_add(flow.demand);
            }
            walks.links.push(links);
        }
        walks
    }

    /// Returns the link from one node to the next one. `None`: none is up.
    fn step(&mut self, step: &[NodeId], loads: &PerLink<u64>, fabric: &Fabric) -> Option<LinkId> {
        let [from, to] = step else { return None };
        let links = fabric.out(*from).filter(|link| fabric.link(*link).to == *to);
        let ratio = |link: &LinkId| Ratio { load: loads[*link], capacity: fabric.link(*link).capacity };
        let least = links.min_by_key(|link| (ratio(link), *link));
        if least.is_none() && self.gone.is_none() {
            self.gone = Some(format!("{} -> {}", fabric.node(*from).name, fabric.node(*to).name));
        }
        least
    }
}

/// Writes down what the job takes of the fabric. Returns the load per capacity of its busiest link.
fn describe(
    placement: &mut Placement,
    fabric: &Fabric,
    loads: &PerLink<u64>,
    carried: &Carried,
    others: &[Occupancy],
) -> f64 {
    let judged = fabric.judged();
    let name = |link: LinkId| {
        let ends = fabric.link(link);
        format!("{} -> {}", fabric.node(ends.from).name, fabric.node(ends.to).name)
    };
    let busiest = busiest_beside(fabric, loads, &carried.respected);
    placement.busiest = busiest.value();
    let own: HashMap<&str, LinkId> = loads
        .iter()
        .filter(|(link, load)| judged[*link] && **load > 0)
        .map(|(link, _)| (fabric.link(link).key.as_str(), link))
        .collect();
    let mut taken: Vec<(&str, LinkId)> = own.iter().map(|(key, link)| (*key, *link)).collect();
    taken.sort_unstable();
    let is_busiest = |link: &LinkId| {
        let load = loads[*link].saturating_add(carried.respected[*link]);
        Ratio { load, capacity: fabric.link(*link).capacity } == busiest
    };
    placement.busiest_link = taken.iter().map(|(_, link)| *link).find(is_busiest).map(name);
    placement.links = taken.into_iter().map(|(key, link)| (key.to_owned(), loads[link])).collect();
    for other in others {
        let shared = other.links.iter().filter(|(_, load)| *load > 0).filter_map(|(key, _)| own.get(key.as_str()));
        let links: Vec<String> = shared.take(NAMED_LINKS).map(|link| name(*link)).collect();
        if !links.is_empty() {
            placement.shares.push(Share { job: other.id.clone(), links });
        }
    }
    placement.busiest
}

/// Returns the vertices of a walk. `None`: one has no entry that says its SIDs.
fn vertices<'s>(walk: &[NodeId], fabric: &Fabric, sids: &'s Sids) -> Option<Vec<&'s Vertex>> {
    walk.iter().map(|node| sids.vertices.get(&fabric.node(*node).id)).collect()
}

/// Composes the carriers of all flows.
fn compose_all(
    whole: &mut Whole,
    flows: &[HostFlow],
    links_of: &[Vec<LinkId>],
    fabric: &Fabric,
    (sids, functions): (&Sids, [Option<u16>; 2]),
) -> Result<(), Refused> {
    let mut numbers: HashMap<Way, u32> = HashMap::new();
    for (flow, links) in flows.iter().zip(links_of) {
        let from = links.first().map(|link| fabric.link(*link).from);
        let walk: Vec<NodeId> = from.into_iter().chain(links.iter().map(|link| fabric.link(*link).to)).collect();
        let Some(vertices) = vertices(&walk, fabric, sids) else {
            return Err(cannot("a switch of a path has no entry in the topology that says its SIDs"));
        };
        let prefixes = whole.hosts.get(flow.to).map_or(&[][..], |(_, prefixes)| prefixes.as_slice());
        let mut ways = [None; 2];
        for ((way, family), function) in ways.iter_mut().zip(FAMILIES).zip(functions) {
            let is_of = |prefix: &IpNet| matches!(prefix, IpNet::V6(_)) == (family == Family::V6);
            if !prefixes.iter().any(is_of) {
                continue;
            }
            let composed = compose(&vertices, sids, &Options { algo: 0, family, strict: false, function });
            let composed = composed.map_err(|why| {
                let ends = [walk.first(), walk.last()].map(|end| end.map_or("", |end| fabric.node(*end).name.as_str()));
                cannot(format!("from {} to {}: {why}", ends[0], ends[1]))
            })?;
            let is_switch = |node: &&NodeId| fabric.node(**node).kind == NodeKind::Switch;
            let via = walk.iter().filter(is_switch).map(|node| fabric.node(*node).name.clone()).collect();
            let new = Way { segments: composed.segments, via };
            let next = u32::try_from(whole.ways.len()).unwrap_or(u32::MAX);
            let number = *numbers.entry(new.clone()).or_insert(next);
            if number == next {
                whole.ways.push(new);
            }
            *way = Some(number);
        }
        if let Some(of) = whole.ways_of.get_mut(flow.from) {
            of.push((flow.to, ways));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use serde_json::json;

    use super::*;

    fn place(job: Job, others: &[Occupancy], ground: Ground) -> Result<Whole, Refused> {
        super::place(job, others.to_vec(), ground, None)
    }

    /// Two leaves, two spines, and two hosts at each leaf.
    pub fn ground() -> Ground {
        let sid = |number: u16, function: Option<(&str, u8)>| {
            let (text, behavior) = function.unwrap_or(("", 48));
            json!({"srv6_sid": format!("fcbb:0:{number:x}:{text}:"),
                "srv6_endpoint_behavior": {"endpoint_behavior": behavior, "flag": 0, "algo": 0}})
        };
        let mut nodes = Vec::new();
        for (number, name) in [(0x1000_u16, "spine0"), (0x1001, "spine1"), (0x1004, "leaf0"), (0x1005, "leaf1")] {
            let mut sids = vec![sid(number, None)];
            if name.starts_with("leaf") {
                sids.extend([sid(number, Some(("fe06:", 62))), sid(number, Some(("fe04:", 63)))]);
            }
            nodes.push(json!({"_key": name, "name": name, "router_id": "10.0.0.1", "sids": sids}));
        }
        let mut edges = Vec::new();
        let mut connect = |one: &str, other: &str| {
            for (from, to) in [(one, other), (other, one)] {
                let id = |name: &str| {
                    if name.starts_with("host") { format!("hosts/{name}") } else { format!("fabric_node/{name}") }
                };
                edges.push(json!({"_key": format!("{from}_{to}"), "_from": id(from), "_to": id(to)}));
            }
        };
        for leaf in ["leaf0", "leaf1"] {
            connect(leaf, "spine0");
            connect(leaf, "spine1");
        }
        let mut hosts = Vec::new();
        for number in 0..4 {
            let name = format!("host{number}");
            connect(&name, if number < 2 { "leaf0" } else { "leaf1" });
            hosts.push(json!({"_key": name, "name": name, "prefix": format!("2001:db8:{number}::"), "prefix_len": 64}));
        }
        Ground { document: json!({"nodes": nodes, "hosts": hosts, "edges": edges}), functions: [None; 2] }
    }

    pub fn job(id: &str, hosts: &[usize], more: &str) -> Job {
        let member = |(rank, host): (usize, &usize)| {
            format!(r#"{{"rank":{rank},"host":"host{host}","addresses":["2001:db8:{host}::1","10.0.{host}.1"]}}"#)
        };
        let members: Vec<String> = hosts.iter().enumerate().map(member).collect();
        serde_json::from_str(&format!(r#"{{"id":"{id}"{more},"members":[{}]}}"#, members.join(","))).unwrap()
    }

    pub fn occupancy(whole: &Whole, priority: u8) -> Occupancy {
        let links = whole.placement.links.clone();
        Occupancy { id: whole.job.job().id.clone(), generation: 1, tenant: None, priority, links }
    }

    #[test]
    fn every_rank_has_a_carrier_for_each_address() {
        let whole = place(job("a", &[0, 2], r#","pattern":"ring""#), &[], ground()).unwrap();
        let paths = whole.of_rank(0).paths;
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert_eq!(
            paths.iter().map(|path| path.prefix.to_string()).collect::<Vec<_>>(),
            ["10.0.2.1/32", "2001:db8:2::1/128"]
        );
        let [v4, v6] = [&paths[0], &paths[1]].map(|path| path.segments[0].to_string());
        assert!(v4.ends_with(":1005:fe04::") && v6.ends_with(":1005:fe06::"), "{v4} {v6}");
        assert_eq!(paths[0].via.len(), 3);
        assert_eq!((whole.placement.busiest, whole.placement.links.len()), (1.0, 4));
        let again = place(job("a", &[0, 2], r#","pattern":"ring""#), &[], ground()).unwrap();
        assert_eq!(whole.placement, again.placement, "each host that places it itself comes to the same result");
    }

    #[test]
    fn a_second_job_takes_what_is_free_and_says_what_it_shares() {
        let first = place(job("a", &[0, 2], ""), &[], ground()).unwrap();
        let second = place(job("b", &[1, 3], ""), &[occupancy(&first, 0)], ground()).unwrap();
        assert_eq!(second.placement.shares, []);
        let third = place(job("c", &[1, 3], ""), &[occupancy(&first, 0), occupancy(&second, 0)], ground()).unwrap();
        assert_eq!(third.placement.busiest.to_string(), "2");
        assert_eq!(third.placement.shares.iter().map(|share| share.links.len()).sum::<usize>(), 4);
        // What is less important does not count where links must be shared.
        let urgent = job("d", &[1, 3], r#","priority":7"#);
        let fourth = place(urgent, &[occupancy(&first, 0), occupancy(&second, 0)], ground()).unwrap();
        assert_eq!(fourth.placement.busiest.to_string(), "1");
    }

    #[test]
    fn what_does_not_fit_the_topology_is_named() {
        let says = |job: Job, text: &str| {
            let why = place(job, &[], ground()).unwrap_err();
            assert!(why.why.contains(text), "{why}");
            why.code
        };
        assert_eq!(says(job("a", &[0, 9], ""), "no host \"host9\""), Code::CannotPlace);
        assert_eq!(says(job("a", &[0, 2], r#","spines":["spine9"]"#), "no switch \"spine9\""), Code::CannotPlace);
        let mut two_names = job("a", &[0, 2, 0], "");
        two_names.members[2].host = "hosts/host0".to_owned();
        two_names.members[2].addresses = vec![srv6d_job::Address::parse("2001:db8:0::7").unwrap()];
        assert_eq!(says(two_names, "one host of the topology"), Code::CannotPlace);
        let empty = Ground { document: json!({}), functions: [None; 2] };
        assert_eq!(place(job("a", &[0, 2], ""), &[], empty).unwrap_err().code, Code::TopologyFailed);
    }

    #[test]
    fn ranks_of_one_host_alone_need_no_path() {
        let whole = place(job("a", &[0, 0], ""), &[], ground()).unwrap();
        assert!(whole.of_rank(0).paths.is_empty() && whole.placement.links.is_empty());
    }

    #[test]
    fn edges_of_unknown_vertices_are_left_out() {
        let mut document =
            json!({"vertices": {"a/b": {}}, "edges": [{"_from": "a/b", "_to": "a/c"}, {"_from": "a/b", "_to": "a/b"}]});
        leave_out_loose_edges(&mut document);
        assert_eq!(document["edges"].as_array().unwrap().len(), 1);
    }

    /// The fabric without one spine's link to leaf0.
    pub fn without(spine: &str) -> Ground {
        let mut ground = ground();
        for edge in ground.document["edges"].as_array_mut().unwrap() {
            let key = edge["_key"].as_str().unwrap();
            if key == format!("leaf0_{spine}") || key == format!("{spine}_leaf0") {
                edge["up"] = json!(false);
            }
        }
        ground
    }

    #[test]
    fn placed_again_only_what_has_lost_its_link_moves() {
        let pairs = r#","pattern":"pairs","pairs":[[0,2],[1,3]]"#;
        let first = place(job("a", &[0, 1, 2, 3], pairs), &[], ground()).unwrap();
        let via = |whole: &Whole, rank| whole.of_rank(rank).paths[0].via.clone();
        let [one, other] = [via(&first, 0), via(&first, 1)];
        assert_ne!(one[1], other[1], "each has a spine of its own");
        let next = || Job { generation: 2, ..job("a", &[0, 1, 2, 3], pairs) };
        let again = |ground| super::place(next(), Vec::new(), ground, Some(&first.as_earlier())).unwrap();
        let same = again(ground());
        let fit = same.fit.as_ref().unwrap();
        assert_eq!((fit.replaces, &fit.gone), (Replaces { generation: 1, flows: 2, moved: 0, lost: 0 }, &None));
        assert_eq!(same.of_rank(0), first.of_rank(0));
        let moved = again(without(&one[1]));
        let fit = moved.fit.as_ref().unwrap();
        assert_eq!(fit.replaces, Replaces { generation: 1, flows: 2, moved: 1, lost: 1 });
        assert_eq!((fit.gone.as_deref(), fit.after), (Some(format!("leaf0 -> {}", one[1]).as_str()), 2.0));
        assert_eq!([via(&moved, 0), via(&moved, 1)], [other.clone(), other]);
        assert_eq!(moved.placement.replaces, Some(fit.replaces));
    }

    #[test]
    fn the_state_of_a_topology_is_of_what_places_jobs() {
        let state = |ground: Ground| ground.state().unwrap();
        assert_ne!(state(ground()), state(without("spine0")));
        let mut loaded = ground();
        loaded.document["edges"][0]["load"] = json!(7);
        assert_eq!(state(ground()), state(loaded), "loads change all the time");
        let mut faster = ground();
        faster.document["edges"][0]["capacity"] = json!(7);
        assert_ne!(state(ground()), state(faster));
        assert_ne!(state(ground()), state(renumbered("leaf1")));
        assert_ne!(state(ground()), state(Ground { functions: [Some(7), None], ..ground() }));
    }

    /// The fabric with other SIDs of a switch.
    fn renumbered(switch: &str) -> Ground {
        let mut ground = ground();
        let nodes = ground.document["nodes"].as_array_mut().unwrap();
        let node = nodes.iter_mut().find(|node| node["name"] == switch).unwrap();
        for sid in node["sids"].as_array_mut().unwrap() {
            sid["srv6_sid"] = json!(sid["srv6_sid"].as_str().unwrap().replacen(":100", ":200", 1));
        }
        ground
    }

    #[test]
    fn paths_whose_carriers_have_changed_are_gone() {
        let pairs = r#","pattern":"pairs","pairs":[[0,2],[1,3]]"#;
        let first = place(job("a", &[0, 1, 2, 3], pairs), &[], ground()).unwrap();
        let spine = first.of_rank(0).paths[0].via[1].clone();
        let next = || Job { generation: 2, ..job("a", &[0, 1, 2, 3], pairs) };
        for (switch, lost) in [("leaf0", 2), ("leaf1", 2), (spine.as_str(), 1)] {
            let again = super::place(next(), Vec::new(), renumbered(switch), Some(&first.as_earlier())).unwrap();
            let fit = again.fit.as_ref().unwrap();
            assert_eq!(fit.replaces, Replaces { generation: 1, flows: 2, moved: lost, lost }, "{switch}");
            assert!(fit.is_renumbered && fit.gone.is_none(), "{fit:?}");
            assert_ne!(again.of_rank(0).paths[0].segments, first.of_rank(0).paths[0].segments);
        }
    }

    #[test]
    fn a_pair_of_several_phases_has_one_path_and_each_phase_its_loads() {
        let phases = r#","phases":[{"pattern":"ring","demand":2},{"pattern":"pairs","pairs":[[0,2],[1,3],[0,1]]}]"#;
        let of = |generation| Job { generation, ..job("a", &[0, 1, 2, 3], phases) };
        let first = place(of(1), &[], ground()).unwrap();
        let loads: Vec<f64> = first.placement.phases.iter().map(|phase| phase.busiest).collect();
        assert_eq!(loads, [2.0, 1.0], "hosts 0 and 1 are at one leaf, and so are 2 and 3");
        assert_eq!((first.placement.busiest, first.placement.bound), (2.0, 2.0));
        assert_eq!(first.of_rank(0).paths.len(), 2 * 2, "to hosts 1 and 2, in both families");
        let again = super::place(of(2), Vec::new(), ground(), Some(&first.as_earlier())).unwrap();
        assert_eq!(again.fit.unwrap().replaces, Replaces { generation: 1, flows: 6, moved: 0, lost: 0 });
        assert_eq!(first.of_rank(1).paths, super::place(of(2), Vec::new(), ground(), None).unwrap().of_rank(1).paths);
    }

    #[test]
    fn a_rank_that_is_replaced_moves_its_own_paths_only() {
        let first = place(job("a", &[0, 2, 3], ""), &[], ground()).unwrap();
        let next = Job { generation: 2, ..job("a", &[0, 2, 1], "") };
        let again = super::place(next, Vec::new(), ground(), Some(&first.as_earlier())).unwrap();
        // Rank 2 is at the leaf of rank 0 now.
        assert_eq!(again.fit.as_ref().unwrap().replaces, Replaces { generation: 1, flows: 6, moved: 4, lost: 4 });
        let to = |whole: &Whole, rank: u32, to: u32| {
            whole.of_rank(rank).paths.into_iter().find(|path| path.to == to).unwrap().via
        };
        for (from, other) in [(0, 1), (1, 0)] {
            assert_eq!(to(&again, from, other), to(&first, from, other));
        }
    }
}
