//! Which server an episode is played on.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use forage_contracts::policy::GenerateRequest;

/// Prefixes that are kept when no episode is under way: members of a group may come one after the other.
const KEPT: usize = 10_000;

/// Deals episodes to servers.
#[derive(Debug)]
pub(super) struct Router(Mutex<Routes>);

#[derive(Debug)]
struct Routes {
    /// Episodes under way on each server.
    loads: Vec<usize>,
    /// Episodes dealt to each server so far, by which servers with the same load take turns.
    dealt: Vec<u64>,
    /// The server of each episode under way.
    episodes: HashMap<u64, usize>,
    /// The server that has read these tokens, by their hash: the prompt of a group, the turns that branches leave from.
    prefixes: HashMap<u64, usize>,
}

impl Router {
    pub(super) fn new(servers: usize) -> Self {
        Self(Mutex::new(Routes {
            loads: vec![0; servers],
            dealt: vec![0; servers],
            episodes: HashMap::new(),
            prefixes: HashMap::new(),
        }))
    }

    /// The server for a request, among those that are usable: that of its episode, else one that has read its tokens for another
    /// episode, else the one with the fewest episodes. `None` where none is.
    pub(super) fn choose(
        &self,
        request: &GenerateRequest,
        usable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hasher = DefaultHasher::new();
        request.tokens.hash(&mut hasher);
        let tokens = hasher.finish();
        let before = routes.episodes.get(&request.episode).copied();
        let read = || routes.prefixes.get(&tokens).copied();
        let known = before
            .filter(|&server| usable(server))
            .or_else(|| read().filter(|&server| usable(server)));
        let least = || {
            let all = (0..routes.loads.len()).filter(|&server| usable(server));
            all.min_by_key(|&server| (routes.loads[server], routes.dealt[server]))
        };
        let server = known.or_else(least)?;
        if before != Some(server) {
            if let Some(before) = before {
                routes.loads[before] -= 1;
            }
            routes.loads[server] += 1;
            routes.dealt[server] += 1;
            routes.episodes.insert(request.episode, server);
        }
        routes.prefixes.insert(tokens, server);
        Some(server)
    }

    /// Forgets who has read what, since new weights read it anew; episodes stay where they are. Else a question that comes again would go
    /// where it was before, however busy that server is, and never to one that has come back.
    pub(super) fn forget(&self) {
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        routes.prefixes.clear();
    }

    /// An episode is over.
    pub(super) fn release(&self, episode: u64) {
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = routes.episodes.remove(&episode) {
            routes.loads[server] -= 1;
        }
        if routes.episodes.is_empty() && routes.prefixes.len() > KEPT {
            routes.prefixes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::policy::Sampling;
    use forage_contracts::seed::Seed;

    use super::*;

    fn request(episode: u64, tokens: &[u32]) -> GenerateRequest {
        GenerateRequest {
            episode,
            tokens: tokens.to_vec(),
            max_tokens: 1,
            stop: Vec::new(),
            ignore_eos: false,
            sampling: Sampling::FULL,
            seed: Seed::root(1),
        }
    }

    #[test]
    fn groups_and_episodes_stay_together_and_the_load_is_even() {
        let router = Router::new(3);
        let choose = |episode, tokens: &[u32]| router.choose(&request(episode, tokens), |_| true);
        // Three members each.
        let places: Vec<usize> = (0..27)
            .map(|episode| choose(episode, &[1, (episode / 3) as u32]).unwrap())
            .collect();
        for (episode, &server) in (0..).zip(&places) {
            assert_eq!(places[episode as usize / 3 * 3], server, "{episode}");
            assert_eq!(choose(episode, &[1, 2, 3, episode as u32]), Some(server));
        }
        for server in 0..3 {
            let episodes = places.iter().filter(|&&place| place == server).count();
            assert_eq!(episodes, 9);
        }
        // A branch leaves episode 5 behind the tokens of its second turn.
        assert_eq!(choose(100, &[1, 2, 3, 5]), Some(places[5]));
        (0..27)
            .chain([100])
            .for_each(|episode| router.release(episode));
        let routes = router.0.lock().unwrap();
        assert_eq!(
            (routes.loads.as_slice(), routes.episodes.len()),
            ([0; 3].as_slice(), 0)
        );
    }

    #[test]
    fn episodes_one_after_the_other_take_turns_and_groups_stay() {
        let router = Router::new(2);
        let places: Vec<usize> = (0..8)
            .map(|episode| {
                let tokens = [1, (episode / 2) as u32];
                let server = router.choose(&request(episode, &tokens), |_| true);
                router.release(episode);
                server.unwrap()
            })
            .collect();
        let groups: Vec<&[usize]> = places.chunks(2).collect();
        assert!(
            groups.iter().all(|group| group[0] == group[1]),
            "{places:?}"
        );
        assert_eq!(places.iter().filter(|&&server| server == 0).count(), 4);
        for episode in 0..=KEPT as u64 {
            router.choose(&request(episode, &[episode as u32]), |_| true);
            router.release(episode);
        }
        assert!(router.0.lock().unwrap().prefixes.len() <= KEPT);
    }

    #[test]
    fn what_was_on_a_lost_server_goes_elsewhere_and_stays_there() {
        let router = Router::new(3);
        let at = |episode, usable: &dyn Fn(usize) -> bool| {
            router.choose(&request(episode, &[episode as u32]), usable)
        };
        let all = |_| true;
        assert_eq!(
            (0..3).map(|episode| at(episode, &all)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2)]
        );
        let without = |server: usize| server != 1;
        assert_eq!(at(1, &without), Some(0));
        assert_eq!(at(3, &without), Some(2), "0 has two");
        // It comes back, and nobody moves for that.
        assert_eq!((at(1, &all), at(4, &all)), (Some(0), Some(1)));
        assert_eq!(at(0, &|_| false), None);
        assert_eq!(router.0.lock().unwrap().loads, [2, 1, 2]);
    }

    #[test]
    fn after_new_weights_questions_are_dealt_anew() {
        let router = Router::new(2);
        let play = |episode: u64, question: u32, usable: &dyn Fn(usize) -> bool| {
            router.choose(&request(episode, &[question]), usable)
        };
        let all = |_| true;
        // While 1 is away.
        for question in 0..4 {
            let server = play(u64::from(question), question, &|server| server == 0);
            assert_eq!(server, Some(0));
        }
        (0..3).for_each(|episode| router.release(episode));
        assert_eq!(play(4, 2, &all), Some(0), "who has read it");
        router.forget();
        assert_eq!(play(5, 2, &all), Some(1), "who has the fewest episodes");
        assert_eq!(play(3, 9, &all), Some(0), "an episode under way stays");
        assert_eq!(router.0.lock().unwrap().loads, [2, 1]);
    }
}
