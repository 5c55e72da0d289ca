//! Numbers of a plan.

use std::path::Path;

use super::*;

fn plan(sweep: &str) -> Plan {
    let text = format!(
        "[[targets]]\nname = \"t\"\nbase_url = \"http://h\"\nmodels = [\"a\", \"b\"]\n\n\
         [[sweeps]]\nname = \"s\"\ntargets = [\"t\"]\n{sweep}"
    );
    let nothing = |_: &str| Err(std::env::VarError::NotPresent);
    let config =
        Config::parse(&text, Path::new("test.toml"), &nothing).unwrap_or_else(|error| panic!("{error}"));
    Plan::new(&config, "2026-06-01T12:34:56Z".parse().unwrap())
}

#[test]
fn load_counts_warmup_and_filler_of_every_worker() {
    let plan = plan(
        "every = \"1h\"\nprompt_tokens = [1000]\nconcurrency = [1, 8]\nrequests_per_level = 10\nmax_tokens = 100\n",
    );
    let sweep = &plan.sweeps[0];
    // Two models; at each 10 + 1 requests, and 10 + 8 and 7 fillers.
    assert_eq!(sweep.run, Load { requests: 72, prompt_tokens: 72_000, output_tokens: 7_200 });
    assert!((sweep.runs_per_day - 24.0).abs() < 0.01, "{}", sweep.runs_per_day);
    // 11 rounds alone, 1 + 2 rounds of eight.
    assert_eq!(sweep.rounds, 28);
    assert_eq!(sweep.request_duration_max(), Some(Duration::from_secs(3600) / 28));
    assert_eq!(sweep.next_starts[0].to_string(), "2026-06-01 13:00:00 UTC");
}

#[test]
fn a_ladder_of_rates_takes_as_long_as_its_arrivals() {
    let plan = plan(
        "every = \"1h\"\nprompt_tokens = [1000]\nload = { rate = [\"1/s\", \"4/s\"] }\nrequests_per_level = 40\nmax_tokens = 100\n",
    );
    let sweep = &plan.sweeps[0];
    // Two models, two rates: one ahead, 10 to warm up, 40, 10 fillers.
    assert_eq!(sweep.run.requests, 4 * 61);
    assert_eq!(sweep.scheduled, Duration::from_secs(2 * (50 + 50 / 4)) + Duration::from_secs(1));
    assert_eq!(sweep.rounds, 8);
    assert!(
        plan.to_string().contains("rate           1/s, 4/s: poisson arrivals, 256 in flight at most"),
        "{plan}"
    );
}

#[test]
fn runs_per_day_of_rare_and_of_frequent_schedules() {
    let grid = "prompt_tokens = [1]\nconcurrency = [1]\n";
    let check = |schedule: &str, expected: f64| {
        let runs = plan(&format!("{schedule}\n{grid}")).sweeps[0].runs_per_day;
        assert!((runs - expected).abs() < expected * 0.01, "{schedule}: {runs}");
    };
    check("schedule = \"0 0 9 * * MON\"", 1.0 / 7.0);
    check("schedule = \"*/5 * * * * *\"", 17_280.0);
    check("every = \"1s\"", 86_400.0);
}

#[test]
fn a_run_that_cannot_fit_warns() {
    let long = plan("every = \"1m\"\nprompt_tokens = [32000]\nconcurrency = [1]\nrequests_per_level = 500\n");
    assert!(long.warnings[0].contains("cannot end within its interval of 1m"), "{:?}", long.warnings);
    let slow = "prompt_tokens = [1]\nload = { rate = \"1/m\" }\nrequests_per_level = 100\n";
    let slow = plan(&format!("every = \"1h\"\n{slow}"));
    assert!(slow.warnings[0].contains("cannot end within its interval of 1h"), "{:?}", slow.warnings);
    let short = plan("every = \"1h\"\nprompt_tokens = [1000]\nconcurrency = [1]\n");
    assert_eq!(short.warnings, [""; 0]);
}

#[test]
fn numbers_are_grouped() {
    let check = |number, expected: &str| assert_eq!(grouped(number), expected);
    check(0, "0");
    check(999, "999");
    check(1_000, "1,000");
    check(1_234_567, "1,234,567");
}
