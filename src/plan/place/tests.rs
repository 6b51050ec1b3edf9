use proptest::prelude::*;

use super::super::demand::tests::made;
use super::*;

/// What every stage of a made model works with besides what is given by hand: 32 MiB, scratch of
/// 256 rows of (10 floats and 4 bytes), ten frames of 256 floats, scores of 8 rows over 64
/// positions, and at most a kilobyte for norms, page tables, logits.
const BASE: u64 = (32 << 20) + 256 * (10 * 4 + 4) + 10 * 256 * 4 + 8 * 64 * 4 + 1024;
/// A unit that makes the base a rounding error, with room for 2 KiB of keys and values a layer.
const GB: u64 = 1 << 40;

fn host(name: &str, usable_bytes: u64) -> Capacity {
    Capacity {
        host: name.into(),
        usable_bytes,
        threads: 1,
    }
}

fn hosts(usable: &[u64]) -> Vec<Capacity> {
    let name = |i| format!("h{i}");
    usable
        .iter()
        .enumerate()
        .map(|(i, usable)| host(&name(i), *usable))
        .collect()
}

fn layers(placement: &Placement) -> Vec<(&str, u32)> {
    placement
        .stages
        .iter()
        .map(|stage| (stage.host.as_str(), stage.plan.layers))
        .collect()
}

#[test]
fn where_the_most_equal_split_fits_it_is_taken_whatever_room_is_left() {
    let demand = made(&[GB; 30], 0, 0, false);
    let placed = place(&demand, &hosts(&[100 * GB, 16 * GB]), "h0").unwrap();
    assert_eq!(layers(&placed), [("h0", 15), ("h1", 15)]);
    assert_eq!(placed.kv_blocks, 2);
    assert!(placed.left_out.is_empty() && placed.remarks().is_empty());
}

#[test]
fn layers_move_to_where_there_is_room() {
    let demand = made(&[GB; 30], 0, 0, false);
    type Row<'a> = (&'a [u64], &'a [(&'a str, u32)]);
    let table: [Row<'_>; 4] = [
        // 24 of 32 and 6 of 8: both three quarters full.
        (&[32 * GB, 8 * GB], &[("h0", 24), ("h1", 6)]),
        (&[8 * GB, 32 * GB], &[("h0", 6), ("h1", 24)]),
        // The fullest holds 13 of 20 at least; with 13, 12, 5 the squares would add up to more.
        (
            &[20 * GB, 20 * GB, 8 * GB],
            &[("h0", 13), ("h1", 13), ("h2", 4)],
        ),
        // Tight, but the equal split fits.
        (&[15 * GB + GB / 2, 100 * GB], &[("h0", 15), ("h1", 15)]),
    ];
    for (usable, wanted) in table {
        let placed = place(&demand, &hosts(usable), "h0").unwrap();
        assert_eq!(layers(&placed), wanted, "{usable:?}");
    }
}

#[test]
fn the_head_comes_first_and_the_others_keep_the_inventorys_order() {
    let demand = made(&[GB; 6], 0, 0, false);
    let placed = place(&demand, &hosts(&[9 * GB; 3]), "h1").unwrap();
    assert_eq!(layers(&placed), [("h1", 2), ("h0", 2), ("h2", 2)]);
    assert_eq!(placed.stages[0].plan.slices[0], Slice::Metadata);
    let error = place(&demand, &hosts(&[GB]), "elsewhere").unwrap_err();
    assert!(error.to_string().contains("elsewhere"), "{error}");
    assert!(matches!(
        *place(&demand, &[], "h0").unwrap_err(),
        PlanError::NoStages
    ));
}

#[test]
fn more_hosts_than_layers_leaves_the_surplus_out_and_says_so() {
    let demand = made(&[GB; 2], 0, 0, false);
    let placed = place(&demand, &hosts(&[9 * GB; 4]), "h3").unwrap();
    assert_eq!(layers(&placed), [("h3", 1), ("h0", 1)]);
    assert_eq!(placed.left_out, ["h1", "h2"]);
    assert_eq!(
        placed.remarks()[0],
        "h1 is left out: 2 layers can be shared by 2 hosts at most"
    );
    // A surplus host takes the place of one without room.
    let placed = place(&demand, &hosts(&[9 * GB, 1, 9 * GB]), "h0").unwrap();
    assert_eq!(layers(&placed), [("h0", 1), ("h2", 1)]);
    assert_eq!(placed.left_out, ["h1"]);
}

#[test]
fn a_host_without_room_for_a_layer_is_left_out_rather_than_failing_the_rest() {
    let demand = made(&[GB; 4], 0, 0, false);
    let placed = place(&demand, &hosts(&[9 * GB, GB / 2, 9 * GB]), "h0").unwrap();
    assert_eq!(layers(&placed), [("h0", 2), ("h2", 2)]);
    assert!(placed.remarks()[0].starts_with("h1 is left out: it has no room"));
}

#[test]
fn a_model_that_does_not_fit_tells_by_how_much_and_what_would() {
    // Four layers of 100 MiB with 1/512 of page tables, and 32 MiB for each worker.
    let mib = 1 << 20;
    let demand = made(&[100 * mib; 4], 0, 0, false);
    let error = place(&demand, &hosts(&[150 * mib, 150 * mib]), "h0").unwrap_err();
    let PlanError::DoesNotFit(misfit) = *error else {
        panic!("{error}");
    };
    // Each host holds one layer (132 of 150) or two (232). Least is short where both hold two:
    // 464 of 300, 82 on each.
    let spare = |bytes: u64, wanted: u64| bytes.abs_diff(wanted) < mib;
    assert!(spare(misfit.need_bytes(), 464 * mib), "{misfit:?}");
    assert_eq!(misfit.usable_bytes(), 300 * mib);
    assert!(spare(misfit.short_bytes(), 164 * mib), "{misfit:?}");
    assert_eq!(misfit.hosts[0].layers, Some((0, 2)));
    assert!(spare(misfit.hosts[1].least_bytes, 132 * mib), "{misfit:?}");
    assert_eq!(misfit.largest_context, None);
    let said = misfit.to_string();
    assert!(
        said.starts_with("made needs 464.8 MiB over 2 hosts with context 64 and concurrency 1; they have 300.0 MiB usable: 164.8 MiB short."),
        "{said}"
    );
}

#[test]
fn the_largest_context_that_fits_is_found_to_the_block() {
    // A block takes 32 positions x 2 floats x 4 bytes = 256 bytes in each of 4 layers, and 8 rows
    // x 32 positions x 4 bytes = 1024 bytes of scores: 2048 bytes in all.
    let demand = made(&[0; 4], 0, 0, false).with_context(4096);
    let at = |blocks: u32| {
        demand
            .with_context(blocks * 32)
            .need(0, 4, true, true, 1)
            .total()
    };
    assert_eq!(at(8) - at(7), 2048);
    let enough = at(7);
    let error = place(&demand, &hosts(&[enough]), "h0").unwrap_err();
    let PlanError::DoesNotFit(misfit) = *error else {
        panic!("{error}");
    };
    assert_eq!(misfit.largest_context, Some(7 * 32));
    assert_eq!(
        largest_context(&demand, &hosts(&[enough]), "h0"),
        Some(7 * 32)
    );
    assert_eq!(
        largest_context(&demand, &hosts(&[enough - 1]), "h0"),
        Some(6 * 32)
    );
    assert_eq!(largest_context(&demand, &hosts(&[GB]), "h0"), Some(4096));
}

#[test]
fn one_more_host_sends_only_what_each_did_not_hold() {
    let demand = made(&[GB; 6], GB / 4, 0, true);
    let two = place(&demand, &hosts(&[9 * GB; 2]), "h0").unwrap();
    let three = place(&demand, &hosts(&[9 * GB; 3]), "h0").unwrap();
    assert_eq!(layers(&two), [("h0", 3), ("h1", 3)]);
    assert_eq!(layers(&three), [("h0", 2), ("h1", 2), ("h2", 2)]);
    let fresh = three.new_since(&two);
    assert_eq!(fresh[0], ("h0".into(), vec![]));
    assert_eq!(fresh[1], ("h1".into(), vec![Slice::Layer(2)]));
    assert_eq!(
        fresh[2].1,
        [
            Slice::Embedding,
            Slice::Layer(4),
            Slice::Layer(5),
            Slice::Output
        ]
    );
    assert!(
        two.new_since(&two)
            .iter()
            .all(|(_, slices)| slices.is_empty())
    );
}

#[test]
fn memory_that_comes_and_goes_moves_no_layer_of_what_is_placed() {
    let demand = made(&[GB; 30], 0, 0, false);
    let before = place(&demand, &hosts(&[32 * GB, 8 * GB]), "h0").unwrap();
    assert_eq!(layers(&before), [("h0", 24), ("h1", 6)]);
    let later = hosts(&[40 * GB, 7 * GB]);
    let again = place_again(&demand, &later, "h0", &(&before).into()).unwrap();
    assert_eq!(layers(&again), layers(&before));
    assert_eq!(again.stages[0].usable_bytes, 40 * GB);
    // Too little now, another host, another head, another model: planned afresh.
    let placed = |demand: &Demand, hosts: &[Capacity], head| {
        let again = place_again(demand, hosts, head, &(&before).into()).unwrap();
        assert_eq!(again, place(demand, hosts, head).unwrap());
    };
    placed(&demand, &hosts(&[40 * GB, 5 * GB]), "h0");
    placed(&demand, &hosts(&[40 * GB, 7 * GB, 7 * GB]), "h0");
    placed(&demand, &hosts(&[40 * GB, 40 * GB]), "h1");
    placed(&made(&[GB; 31], 0, 0, false), &later, "h0");
}

#[test]
fn a_placement_reads_back_from_its_record() {
    let demand = made(&[GB; 6], GB, 0, true);
    let placed = place(&demand, &hosts(&[9 * GB; 7]), "h0").unwrap();
    let text = serde_json::to_string(&placed).unwrap();
    assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), placed);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let stage = &value["stages"][0];
    for field in ["host", "stage", "first_layer", "layers", "bytes", "slices"] {
        assert!(stage.get(field).is_some(), "no {field} in {stage}");
    }
    assert!(stage["need"]["pieces"].is_u64() && stage["usable_bytes"].is_u64());
}

/// Every way to give each host a run or none, in order, the head not none.
fn all_runs(hosts: usize, layers: usize) -> Vec<Runs> {
    fn go(
        host: usize,
        hosts: usize,
        from: usize,
        layers: usize,
        so_far: &Runs,
        all: &mut Vec<Runs>,
    ) {
        if host == hosts {
            if from == layers {
                all.push(so_far.clone());
            }
            return;
        }
        for to in from..=layers {
            if to == from && host == 0 {
                continue;
            }
            let mut next = so_far.clone();
            next.push((to > from).then_some((from, to)));
            go(host + 1, hosts, to, layers, &next, all);
        }
    }
    let mut all = Vec::new();
    go(0, hosts, 0, layers, &Vec::new(), &mut all);
    all
}

fn totals<'a>(
    demand: &'a Demand,
    hosts: &'a [&'a Capacity],
    runs: &'a Runs,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    runs.iter().enumerate().filter_map(move |(host, run)| {
        let (from, to) = (*run)?;
        Some((
            need(demand, hosts, host, from, to).total(),
            usable(hosts, host),
        ))
    })
}

prop_compose! {
    fn a_demand()(
        layers in proptest::collection::vec(0u64..50, 1..7),
        embedding in 0u64..60, output in 0u64..60, tied_output: bool,
    ) -> Demand {
        let mib = |n: u64| n << 20;
        made(
            &layers.into_iter().map(mib).collect::<Vec<_>>(), mib(embedding), mib(output), tied_output,
        )
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn placements_are_complete_within_limits_and_as_good_as_trying_them_all(
        demand in a_demand(), room in proptest::collection::vec(0u64..250, 1..5),
    ) {
        let capacities = hosts(&room.iter().map(|n| n << 20).collect::<Vec<_>>());
        let order = in_order(&capacities, "h0").unwrap();
        let all = all_runs(order.len(), demand.layers());
        let fitting: Vec<&Runs> = all
            .iter()
            .filter(|runs| totals(&demand, &order, runs).all(|(need, usable)| need <= usable))
            .collect();
        match place(&demand, &capacities, "h0") {
            Err(error) => {
                prop_assert!(fitting.is_empty());
                let PlanError::DoesNotFit(misfit) = *error else { panic!("{error}") };
                let least = all.iter().map(|runs| {
                    totals(&demand, &order, runs).map(|(need, usable)| need.saturating_sub(usable)).sum::<u64>()
                }).min();
                prop_assert_eq!(Some(misfit.short_bytes()), least);
                prop_assert!(misfit.short_bytes() > 0);
                prop_assert_eq!(misfit.hosts.len(), room.len());
            }
            Ok(placed) => {
                let mut next = 0;
                for (i, stage) in placed.stages.iter().enumerate() {
                    prop_assert_eq!(stage.plan.stage as usize, i);
                    prop_assert_eq!(stage.plan.first_layer, next);
                    prop_assert!(stage.plan.layers >= 1);
                    next += stage.plan.layers;
                    prop_assert!(stage.need.total() <= stage.usable_bytes);
                }
                prop_assert_eq!(next as usize, demand.layers());
                prop_assert_eq!(placed.stages[0].host.as_str(), "h0");
                prop_assert_eq!(placed.stages.len() + placed.left_out.len(), room.len());
                prop_assert_eq!(&place(&demand, &capacities, "h0").unwrap(), &placed);

                let most = fitting.iter().map(|runs| runs.iter().flatten().count()).max().unwrap();
                prop_assert_eq!(placed.stages.len(), most);
                let equal = split(&demand.parts, most.min(demand.layers())).unwrap();
                let same = placed.stages.iter().zip(&equal).all(|(a, b)| a.plan == *b);
                let fullest = |all: &mut dyn Iterator<Item = (u64, u64)>| {
                    all.map(|(need, usable)| share(need, usable).unwrap()).max().unwrap()
                };
                let own = fullest(&mut placed.stages.iter().map(|s| (s.need.total(), s.usable_bytes)));
                let best = fitting.iter()
                    .filter(|runs| runs.iter().flatten().count() == most)
                    .map(|runs| fullest(&mut totals(&demand, &order, runs)))
                    .min().unwrap();
                prop_assert!(same || own == best, "{own} of {best}");
            }
        }
    }

    #[test]
    fn more_memory_never_turns_a_fit_into_a_misfit(
        demand in a_demand(), room in proptest::collection::vec((0u64..250, 0u64..100), 1..5),
    ) {
        let mib = |n: &u64| n << 20;
        let less = hosts(&room.iter().map(|(n, _)| mib(n)).collect::<Vec<_>>());
        let more = hosts(&room.iter().map(|(n, extra)| mib(n) + mib(extra)).collect::<Vec<_>>());
        if place(&demand, &less, "h0").is_ok() {
            prop_assert!(place(&demand, &more, "h0").is_ok());
        }
        let most = |hosts: &[Capacity]| largest_context(&demand, hosts, "h0");
        prop_assert!(most(&less) <= most(&more));
    }
}

#[test]
fn the_base_of_a_made_model_is_as_small_as_these_tests_take_it() {
    let need = made(&[0], 0, 0, false).need(0, 1, true, true, 1);
    assert!(need.working <= BASE, "{need:?}");
}
