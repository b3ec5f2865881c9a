//! The standard library: the files of `stdlib/`, embedded in the compiler.

/// Name and source text of each module.
pub const STDLIB: &[(&str, &str)] = &[
    ("appnp", include_str!("../../../stdlib/appnp.hgnn")),
    ("compgcn", include_str!("../../../stdlib/compgcn.hgnn")),
    ("contrast", include_str!("../../../stdlib/contrast.hgnn")),
    ("dgi", include_str!("../../../stdlib/dgi.hgnn")),
    ("gat", include_str!("../../../stdlib/gat.hgnn")),
    ("gcn", include_str!("../../../stdlib/gcn.hgnn")),
    ("gin", include_str!("../../../stdlib/gin.hgnn")),
    ("gtn", include_str!("../../../stdlib/gtn.hgnn")),
    ("han", include_str!("../../../stdlib/han.hgnn")),
    ("hdgi", include_str!("../../../stdlib/hdgi.hgnn")),
    ("heco", include_str!("../../../stdlib/heco.hgnn")),
    ("het_gnn", include_str!("../../../stdlib/het_gnn.hgnn")),
    ("hgt", include_str!("../../../stdlib/hgt.hgnn")),
    ("ie_hgcn", include_str!("../../../stdlib/ie_hgcn.hgnn")),
    ("light_gcn", include_str!("../../../stdlib/light_gcn.hgnn")),
    ("link", include_str!("../../../stdlib/link.hgnn")),
    ("magnn", include_str!("../../../stdlib/magnn.hgnn")),
    ("r_hgnn", include_str!("../../../stdlib/r_hgnn.hgnn")),
    ("rgat", include_str!("../../../stdlib/rgat.hgnn")),
    ("rgcn", include_str!("../../../stdlib/rgcn.hgnn")),
    ("sage", include_str!("../../../stdlib/sage.hgnn")),
    ("sehgnn", include_str!("../../../stdlib/sehgnn.hgnn")),
    ("sign", include_str!("../../../stdlib/sign.hgnn")),
    ("simple_hgn", include_str!("../../../stdlib/simple_hgn.hgnn")),
];
