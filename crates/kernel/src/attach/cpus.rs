//! Which CPUs take packets as CPUs come, go, and are asked for.

use rxsteer_core::CpuSet;

/// What changes when the CPUs that take packets become others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Turnover {
    /// CPUs that begin to take packets.
    pub(super) come: CpuSet,
    /// CPUs that work off what waits there and then take none.
    pub(super) leave: CpuSet,
    /// CPUs that run no more: nothing of them can be waited for.
    pub(super) gone: CpuSet,
}

/// Returns which of the CPUs that were asked for can take packets while these are online.
///
/// If none is left, none takes packets: they stay where they come in.
pub(super) fn usable(asked: &CpuSet, online: &CpuSet) -> CpuSet {
    asked.intersection(online)
}

/// Returns the way from the CPUs that take packets now to those that shall.
pub(super) fn turnover(now: &CpuSet, then: &CpuSet, online: &CpuSet) -> Turnover {
    let no_more = now.difference(then);
    let gone = no_more.difference(online);
    Turnover { come: then.difference(now), leave: no_more.difference(&gone), gone }
}

/// Returns how many packets each CPU that took more than it was sent shall be counted as sent: those
/// that wait at CPUs that are gone, whose threads run elsewhere now. `waiting` are theirs, `excess` those
/// of the others; also returned is how many each of the former has less.
pub(super) fn make_even(waiting: &[u64], excess: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let count = waiting.iter().sum::<u64>().min(excess.iter().sum());
    let share = |counts: &[u64]| {
        let mut left = count;
        let part = |most: &u64| {
            let part = left.min(*most);
            left -= part;
            part
        };
        counts.iter().map(part).collect()
    };
    (share(waiting), share(excess))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        CpuSet::from_list(list).unwrap()
    }

    #[test]
    fn a_cpu_that_goes_offline_is_taken_out_and_comes_back_with_it() {
        let asked = set("0-3");
        let without = usable(&asked, &set("0,2-7"));
        assert_eq!(without, set("0,2-3"));
        let out = turnover(&asked, &without, &set("0,2-7"));
        assert_eq!((out.come, out.leave, out.gone), (CpuSet::EMPTY, CpuSet::EMPTY, set("1")));
        let again = usable(&asked, &set("0-7"));
        let back = turnover(&without, &again, &set("0-7"));
        assert_eq!((back.come, back.leave, back.gone), (set("1"), CpuSet::EMPTY, CpuSet::EMPTY));
    }

    #[test]
    fn a_cpu_that_is_no_more_asked_for_is_waited_for() {
        let other = turnover(&set("0-1"), &set("1-2"), &set("0-3"));
        assert_eq!((other.come, other.leave, other.gone), (set("2"), set("0"), CpuSet::EMPTY));
    }

    #[test]
    fn packets_that_another_cpu_took_are_counted_as_sent_there() {
        assert_eq!(make_even(&[5], &[0, 3]), (vec![3], vec![0, 3]));
        assert_eq!(make_even(&[2], &[0, 3]), (vec![2], vec![0, 2]));
        assert_eq!(make_even(&[1, 4], &[2, 2]), (vec![1, 3], vec![2, 2]));
        assert_eq!(make_even(&[], &[7]), (vec![], vec![0]));
    }

    #[test]
    fn without_any_cpu_none_takes_packets() {
        assert!(usable(&set("4-5"), &set("0-3")).is_empty());
    }
}
