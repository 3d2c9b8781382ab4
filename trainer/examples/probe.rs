use std::sync::Arc; use std::time::Instant;
use forage_env::{world::*, seed::Seed, task::*, search_r1::*, tokenizer::*, reward::RewardSet, scripted::OracleStyle};
use forage_retriever::Bm25Retriever;
use forage_trainer::{*, model::*, generate::EngineConfig, learner::*, run::*, warm_start::*, workers::Workers, optim::AdamWConfig, weights::Checkpoint};
fn arg(name: &str, d: f64) -> f64 { std::env::args().find_map(|a| a.strip_prefix(&format!("{name}=")).map(|v| v.parse().unwrap())).unwrap_or(d) }
fn main() {
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    rt.block_on(async {
        let mut spec = WorldSpec::new(arg("pages", 20000.) as u64, arg("wseed", 101.) as u64);
        spec.difficulty = Difficulty::quickstart();
        let h2 = arg("hop2", 0.3) as f32;
        spec.difficulty.hops = [1.0 - h2, h2, 0., 0.];
        spec.difficulty.near_names = arg("near",0.1) as f32; spec.difficulty.paraphrase = arg("para", 0.25) as f32;
        let world = World::new(spec).unwrap();
        let (tok, json) = bpe::train(text_lines(&world), arg("vocab", 1024.) as usize).unwrap();
        let retriever = Arc::new(Bm25Retriever::in_memory(world.passages().collect()).unwrap());
        let mut settings = SearchR1Settings::default();
        settings.prompt = PromptTemplate::Short; settings.top_k = arg("k", 2.) as usize; settings.max_turn_tokens = 24; settings.max_episode_tokens = 320; settings.max_generations = 3;
        settings.observation = ObservationSettings { limit_tokens: 200, passage: "{title}: {text}\n".into(), opening: "<information>".into(), closing: "</information>".into() };
        settings.on_invalid = OnInvalid::End;
        let tokd: Arc<dyn Tokenizer> = Arc::new(tok.clone());
        let factory = SearchR1::factory(settings, retriever, tokd.clone()).unwrap();
        let dev: Vec<Arc<Task>> = world.questions(Split::Dev, 100).unwrap().map(Arc::new).collect();
        let problem = Problem { factory: factory.clone(), rewards: Arc::new(RewardSet::exact_match()), train: vec![].into(), dev: dev.into() };
        let shape = ModelConfig { architecture: Architecture::Qwen3, vocab_size: tok.vocab_size(), hidden_size: arg("h",128.) as usize, intermediate_size: arg("ffn",256.) as usize, num_hidden_layers: arg("layers",4.) as usize, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 32, max_position_embeddings: 512, rope_theta: arg("theta", 10000.), rms_norm_eps: 1e-6, tie_word_embeddings: true };
        let device = burn::tensor::Device::flex();
        let decoder = init_random(&shape, Seed::root(arg("seed",1.) as u64), &device);
        let ck = Checkpoint { config: shape, decoder, tokenizer: tok.clone(), tokenizer_json: json, eos: bpe::EOS.into() };
        let cfg = WarmStartConfig { steps: arg("steps", 3000.) as u64, demonstrations_per_step: arg("n", 32.) as usize, pretrain_steps: arg("pre", 0.) as u64, stop_at_em: arg("stop", 0.9), evaluate_every: arg("every",100.) as u64,
            optimizer: AdamWConfig { learning_rate: arg("lr", 2e-3), warmup_steps: 100, beta2: 0.98, weight_decay: arg("wd",0.01), ..Default::default() }, style: if arg("plain",0.)>0. {OracleStyle::Plain} else {OracleStyle::Terse} };
        let demo = Demonstrator { factory, tokenizer: Arc::new(tok.clone()), style: cfg.style, seed: Seed::root(3) };
        let some = world.questions(Split::Train, 3).unwrap().map(Arc::new).collect::<Vec<_>>();
        for s in demo.sequences(&some, 0).await { println!("{} tokens, {} targets\n{:?}", s.ids.len(), s.targets.len(), tok.decode(&s.ids)); println!("{:?}", s.ids.iter().map(|&i| tok.decode(&[i])).collect::<Vec<_>>().join("|")); }
        let mut learner = Learner::new(ck, UpdateConfig { optimizer: cfg.optimizer, micro_batch_tokens: arg("mb",1500.) as usize, ..Default::default() }, EngineConfig { slots: 128, context: 320, prefill_tokens: 2048 }, Workers::new(2));
        let start = Instant::now(); let mut tokens = 0.0; let mut loss = 0.0;
        let tasks = (0..).map(|i| world.question(Split::Train, i));
        warm_start(&mut learner, &problem, tasks, &demo, &cfg, |row| {
            tokens += row.get("optim/tokens").unwrap(); loss = 0.95*loss + 0.05*row.get("sft/loss").unwrap();
            if let Some(em) = row.get("val/em") { println!("step {} loss {:.3} em {em:.3} targets {tokens} {:.0}s", row.step(), loss, start.elapsed().as_secs_f64()); }
            Control::Continue }).await.unwrap();
        learner.checkpoint().save(std::path::Path::new("/tmp/probe_ck")).unwrap();
    });
}
fn text_lines(world: &World) -> impl Iterator<Item = String> + Send { let v: Vec<String> = forage_env::world::text(world, 20000).collect(); v.into_iter() }
