//! Pages of engines, what is read from them, and what it makes of a level.

use proptest::prelude::*;

use super::*;

/// A page of which every line is about one model.
fn page(lines: &[(&str, f64)]) -> String {
    lines.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join("\n")
}

fn between(before: &str, after: &str) -> EngineView {
    let (before, after) = (Snapshot::of(before, "m"), Snapshot::of(after, "m"));
    let client = FirstTokens { count: 10, mean_seconds: 0.5 };
    EngineView::between(&before, Some(&after), &after, client).unwrap()
}

fn near(value: Option<f64>, expect: f64) {
    assert!(value.is_some_and(|value| (value - expect).abs() < 1e-9), "{value:?} is not {expect}");
}

#[test]
fn a_line_is_read_with_its_labels_escapes_and_odd_endings() {
    let read = |line: &'static str| samples(line).next();
    let sample = read("a:b_sum{x=\"1\",y=\"a\\\\b\\\"c}\\n\",} 2.5e3 1712345 # {id=\"7\"} 1").unwrap();
    assert!(sample.name == "a:b_sum" && (sample.value - 2500.0).abs() < 1e-9);
    assert_eq!(sample.labels.get("x").as_deref(), Some("1"));
    assert_eq!(sample.labels.get("y").as_deref(), Some("a\\b\"c}\n"));
    assert_eq!(sample.labels.get("z"), None);
    assert!((read("up 1").unwrap().value - 1.0).abs() < 1e-9);
    assert!(read("up +Inf").unwrap().value.is_infinite() && read("up NaN").unwrap().value.is_nan());
    for line in ["", "# HELP up x", "#TYPE up gauge", "up", "up x", "up{a=\"1\" 1", "{\"up\"} 1", "\u{feff}"]
    {
        assert_eq!(read(line), None, "{line}");
    }
}

proptest! {
    #[test]
    fn whatever_is_written_by_the_rules_is_read_again(
        name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,20}",
        labels in prop::collection::btree_map("[a-z_]{1,8}", ".{0,20}", 0..4),
        value in prop::num::f64::NORMAL,
    ) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let written: Vec<String> = labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
        // What ends a line elsewhere may not stand in one here.
        prop_assume!(written.iter().all(|label| label.lines().count() <= 1));
        let line = format!("{name}{{{}}} {value}", written.join(","));
        let found: Vec<Sample<'_>> = samples(&line).collect();
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!(found[0].name, &name);
        prop_assert_eq!(found[0].value.to_bits(), value.to_bits());
        for (label, text) in &labels {
            let read = found[0].labels.get(label);
            prop_assert_eq!(read.as_deref(), Some(text.as_str()));
        }
    }

    #[test]
    fn nothing_that_is_sent_breaks_the_reader(page in ".{0,400}", model in ".{0,10}") {
        let snapshot = Snapshot::of(&page, &model);
        prop_assert!(snapshot == snapshot.clone() || page.contains("NaN"));
    }
}

#[test]
fn vllm_tells_all_parts() {
    let told = |requests: f64, first: f64, queue: f64, prefill: f64, hits: f64| {
        page(&[
            ("vllm:time_to_first_token_seconds_sum{model_name=\"m\"}", first),
            ("vllm:time_to_first_token_seconds_count{model_name=\"m\"}", requests),
            ("vllm:time_to_first_token_seconds_sum{model_name=\"other\"}", 1e6),
            ("vllm:request_queue_time_seconds_sum{model_name=\"m\"}", queue),
            ("vllm:request_queue_time_seconds_count{model_name=\"m\"}", requests),
            ("vllm:request_prefill_time_seconds_sum{model_name=\"m\"}", prefill),
            ("vllm:request_prefill_time_seconds_count{model_name=\"m\"}", requests),
            ("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"}", 0.25),
            ("vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"}", 0.75),
            ("vllm:num_requests_running{engine=\"0\",model_name=\"m\"}", 3.0),
            ("vllm:num_requests_running{engine=\"1\",model_name=\"m\"}", 4.0),
            ("vllm:num_requests_waiting{model_name=\"m\"}", 2.0),
            ("vllm:num_preemptions_total{model_name=\"m\"}", requests / 10.0),
            ("vllm:prefix_cache_hits_total{model_name=\"m\"}", hits),
            ("vllm:prefix_cache_queries_total{model_name=\"m\"}", requests * 100.0),
        ])
    };
    let view = between(&told(100.0, 7.0, 1.0, 3.0, 5.0), &told(110.0, 11.0, 2.5, 5.0, 255.0));
    assert_eq!((view.engine, view.requests, view.own_requests), ("vLLM", Some(10.0), 10));
    near(view.part(Part::Outside), 0.1);
    near(view.part(Part::Queue), 0.15);
    near(view.part(Part::Prefill), 0.2);
    near(view.part(Part::Rest), 0.05);
    near(Some(view.balance()), 1.0);
    near(view.kv_cache_usage, 0.75);
    near(view.running, 7.0);
    near(view.waiting, 2.0);
    near(view.preemptions, 1.0);
    near(view.prefix_cache_hit_ratio, 0.25);
    assert_eq!(view.dominant(), None);
    assert!(!view.is_shared());
}

#[test]
fn other_engines_tell_what_they_tell() {
    let sglang = |n: f64| {
        page(&[
            ("sglang:time_to_first_token_seconds_sum", n * 0.4),
            ("sglang:time_to_first_token_seconds_count", n),
            ("sglang:queue_time_seconds_sum", n * 0.3),
            ("sglang:queue_time_seconds_count", n),
            ("sglang:per_stage_req_latency_seconds_sum{stage=\"decode_forward\"}", n * 9.0),
            ("sglang:per_stage_req_latency_seconds_sum{stage=\"prefill_forward\"}", n * 0.1),
            ("sglang:per_stage_req_latency_seconds_count{stage=\"prefill_forward\"}", n),
        ])
    };
    let view = between(&sglang(3.0), &sglang(13.0));
    near(view.part(Part::Queue), 0.3);
    near(view.part(Part::Prefill), 0.1);
    assert_eq!(view.dominant().map(|(part, _)| part), Some(Part::Queue));

    let tgi = |n: f64| {
        page(&[
            ("tgi_request_queue_duration_sum", n * 0.05),
            ("tgi_request_queue_duration_count", n),
            ("tgi_batch_inference_duration_sum{method=\"prefill\"}", n * 0.35),
            ("tgi_batch_inference_duration_count{method=\"prefill\"}", n),
            ("tgi_batch_inference_duration_sum{method=\"decode\"}", n * 5.0),
        ])
    };
    let view = between(&tgi(0.0), &tgi(10.0));
    assert_eq!((view.engine, view.part(Part::Outside)), ("TGI", None));
    near(view.part(Part::Prefill), 0.35);
    near(view.part(Part::Rest), 0.1);

    let llama =
        |seconds| page(&[("llamacpp:prompt_seconds_total", seconds), ("llamacpp:requests_deferred", 3.0)]);
    let view = between(&llama(1.0), &llama(5.0));
    assert_eq!((view.engine, view.part(Part::Queue), view.waiting), ("llama.cpp", None, Some(3.0)));
    near(view.part(Part::Prefill), 0.4);

    let triton = |n: f64| {
        page(&[
            ("nv_inference_first_response_histogram_ms_sum{model=\"m\"}", n * 450.0),
            ("nv_inference_first_response_histogram_ms_count{model=\"m\"}", n),
            ("nv_inference_queue_duration_us{model=\"m\"}", n * 2e5),
            ("nv_inference_request_success{model=\"m\"}", n),
            ("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"m\"}", 900.0),
            ("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"m\"}", 0.5),
        ])
    };
    let view = between(&triton(0.0), &triton(10.0));
    assert_eq!(view.engine, "Triton");
    near(view.part(Part::Outside), 0.05);
    near(view.part(Part::Queue), 0.2);
    near(view.kv_cache_usage, 0.5);
}

#[test]
fn what_does_not_add_up_or_is_of_others_decides_nothing() {
    let told = |requests: f64, seconds: f64| {
        page(&[
            ("vllm:time_to_first_token_seconds_sum", seconds),
            ("vllm:time_to_first_token_seconds_count", requests),
            ("vllm:request_queue_time_seconds_sum", seconds),
            ("vllm:request_queue_time_seconds_count", requests),
        ])
    };
    // The engine's clock says ten times what the client waited.
    let off = between(&told(0.0, 0.0), &told(10.0, 50.0));
    assert!((off.balance() - 10.0).abs() < 1e-9 && !off.is_balanced() && off.dominant().is_none());
    let shared = between(&told(0.0, 0.0), &told(50.0, 25.0));
    assert!(shared.is_shared() && shared.dominant().is_none());
    let alone = between(&told(0.0, 0.0), &told(11.0, 5.5));
    assert!(!alone.is_shared());
    assert_eq!(alone.dominant().map(|(part, _)| part), Some(Part::Queue));
    // Restarted meanwhile: its counters fell.
    let (before, after) = (Snapshot::of(&told(90.0, 9.0), "m"), Snapshot::of(&told(5.0, 1.0), "m"));
    let client = FirstTokens { count: 10, mean_seconds: 0.5 };
    assert_eq!(EngineView::between(&before, None, &after, client), None);
    let nothing = Snapshot::of("up 1\n", "m");
    assert!(nothing.is_empty());
    assert_eq!(EngineView::between(&nothing, None, &nothing, client), None);
}
