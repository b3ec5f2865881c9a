//! Profiles as JSON: all fields of [`Profile`], plus derived values for readers without this crate.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::profile::{FORMAT, Profile, VERSION};
use crate::summary::{KINDS, PHASES, Total};

/// The text of `profile.json`.
pub fn write(profile: &Profile) -> String {
    format!("{:#}\n", value(profile))
}

/// The contents as a JSON value; a device adds its own entries.
pub fn value(profile: &Profile) -> Value {
    // Serialization cannot fail: keys are strings and numbers are finite.
    let mut value = serde_json::to_value(profile).unwrap_or_default();
    if let Value::Object(object) = &mut value {
        let derived = derived(profile);
        for (kernel, shown) in
            profile.kernels.iter().zip(object.get_mut("kernels").and_then(Value::as_array_mut).into_iter().flatten())
        {
            shown["intensity"] = kernel.intensity().into();
            shown["flops_per_s"] = kernel.flops_per_s().into();
            shown["bytes_per_s"] = kernel.bytes_per_s().into();
            shown["share"] = profile.share(kernel.measured_ms).into();
        }
        if let Some(kernels) = object.get_mut("kernels").and_then(Value::as_array_mut) {
            let ms = |kernel: &Value| kernel["measured_ms"].as_f64().unwrap_or(0.0);
            kernels.sort_by(|a, b| ms(b).total_cmp(&ms(a)));
        }
        object.extend(derived);
    }
    value
}

fn derived(profile: &Profile) -> Map<String, Value> {
    let named = |pairs: Vec<(&str, Value)>| -> Value {
        Value::Object(pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    };
    let stages = profile.stages();
    let stage = |time: &crate::summary::StageTime| {
        json!({
            "kernels": time.kernels, "measured_ms": time.ms(), "predicted_ms": time.predicted_ms,
            "forward_ms": time.phases[0], "backward_ms": time.phases[1], "update_ms": time.phases[2],
            "share": profile.share(time.ms()),
        })
    };
    let phase = |index: usize| {
        let ms: f64 = stages.iter().map(|time| time.phases[index]).sum();
        json!({"measured_ms": ms, "share": profile.share(ms)})
    };
    let kind = |total: &Total| {
        json!({
            "kernels": total.kernels, "measured_ms": total.ms, "predicted_ms": total.predicted_ms,
            "flops_per_s": total.flops_per_s(), "bytes_per_s": total.bytes_per_s(), "intensity": total.intensity(),
            "share": profile.share(total.ms),
        })
    };
    let rest = |part: &crate::summary::Rest| json!({"measured_ms": part.ms, "share": profile.share(part.ms)});
    let value = json!({
        "epoch_ms": profile.epoch_ms(),
        "headline": profile.headline(),
        "stages": named(stages.iter().map(|time| (time.stage, stage(time))).collect()),
        "phases": named(PHASES.iter().enumerate().map(|(index, name)| (*name, phase(index))).collect()),
        "kinds": named(KINDS.iter().zip(profile.kinds()).map(|((name, _), total)| (*name, kind(&total))).collect()),
        "rest": named(profile.rest().iter().map(|part| (part.name, rest(part))).collect()),
    });
    let Value::Object(mut object) = value else { return Map::new() };
    if let Some(imbalance) = profile.imbalance() {
        object.insert("imbalance".into(), json!({"rank": imbalance.rank, "ratio": imbalance.ratio}));
    }
    object
}

/// Why a text is not a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadProfile {
    /// It has another format.
    Other(String),
    /// It was written by an unsupported version.
    Version(u64),
}

impl fmt::Display for BadProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadProfile::Other(why) => write!(f, "not a profile: {why}"),
            BadProfile::Version(found) => write!(
                f,
                "a profile of version {found}, and this program reads version {VERSION}: profile the model again"
            ),
        }
    }
}

impl std::error::Error for BadProfile {}

/// Parses the output of [`write()`].
///
/// # Errors
/// When the format or version differs, or a field is missing.
pub fn read(text: &str) -> Result<Profile, BadProfile> {
    let other = |why: String| Err(BadProfile::Other(why));
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return other(error.to_string()),
    };
    match (value.get("format"), value.get("version").and_then(Value::as_u64)) {
        (Some(Value::String(format)), Some(version)) if format == FORMAT => {
            if version != u64::from(VERSION) {
                return Err(BadProfile::Version(version));
            }
        }
        _ => return other(format!("it has no `\"format\": \"{FORMAT}\"` with a version")),
    }
    let mut profile: Profile = match serde_json::from_value(value) {
        Ok(profile) => profile,
        Err(error) => return other(error.to_string()),
    };
    profile.kernels.sort_by_key(|kernel| kernel.kernel);
    Ok(profile)
}
