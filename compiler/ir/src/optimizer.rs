//! Options of the parameter update: optimizers, learning-rate schedules, gradient clipping.
//!
//! The front end reads them from a train block, and a pass appends the update to a program. The formulas are PyTorch's
//! (`torch.optim.SGD`, `Adam`, `AdamW`, `torch.nn.utils.clip_grad_norm_`).

/// An optimizer with its hyperparameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Optimizer {
    /// Stochastic gradient descent. State: slot 0 is the momentum buffer, where momentum is not 0.
    Sgd {
        /// Learning rate, before the schedule.
        lr: f64,
        /// Fraction of the momentum buffer that is kept.
        momentum: f64,
        /// Look ahead by the momentum (Sutskever et al. 2013).
        nesterov: bool,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
    },
    /// Adam (Kingma & Ba 2015, algorithm 1). State: slot 0 is the first moment, slot 1 the second.
    Adam {
        /// Learning rate, before the schedule.
        lr: f64,
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// Added to the root of the second moment.
        eps: f64,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2). State as Adam.
    AdamW {
        /// Learning rate, before the schedule.
        lr: f64,
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// Added to the root of the second moment.
        eps: f64,
        /// Fraction of a parameter that is subtracted per step, times the learning rate.
        weight_decay: f64,
    },
}

impl Optimizer {
    /// SGD without momentum and weight decay.
    pub fn sgd(lr: f64) -> Self {
        Self::Sgd { lr, momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }

    /// Adam with the usual constants.
    pub fn adam(lr: f64) -> Self {
        Self::Adam { lr, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 }
    }

    /// AdamW with the usual constants, no weight decay.
    pub fn adam_w(lr: f64) -> Self {
        Self::AdamW { lr, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 }
    }

    /// The learning rate before any schedule.
    pub fn learning_rate(&self) -> f64 {
        match self {
            Self::Sgd { lr, .. } | Self::Adam { lr, .. } | Self::AdamW { lr, .. } => *lr,
        }
    }

    /// Number of state tensors per parameter.
    pub fn num_slots(&self) -> u32 {
        match self {
            Self::Sgd { momentum, .. } => u32::from(*momentum != 0.0),
            Self::Adam { .. } | Self::AdamW { .. } => 2,
        }
    }
}

/// The factor of the learning rate as a function of the epoch, which counts from 0.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Schedule {
    /// The factor is 1 in every epoch.
    #[default]
    Constant,
    /// The factor is `factor^⌊epoch / every⌋`.
    Step {
        /// Number of epochs between changes.
        every: u64,
        /// Factor of each change.
        factor: f64,
    },
    /// The factor is `factor^epoch`.
    Exponential {
        /// Factor of each epoch.
        factor: f64,
    },
    /// From 1 to `floor` along half a cosine, then `floor` (Loshchilov & Hutter 2017, eq. 5, no restart).
    Cosine {
        /// Epochs until the floor.
        epochs: u64,
        /// The last factor, a fraction of the learning rate.
        floor: f64,
    },
    /// `(epoch + 1) / epochs` for that many epochs, then another schedule from its epoch 0.
    Warmup {
        /// Number of epochs of the warm-up.
        epochs: u64,
        /// The schedule after the warm-up.
        then: Box<Schedule>,
    },
}

impl Schedule {
    /// The factor of an epoch, as the program computes it.
    pub fn factor(&self, epoch: u64) -> f64 {
        match self {
            Schedule::Constant => 1.0,
            Schedule::Step { every, factor } => factor.powf((epoch / (*every).max(1)) as f64),
            Schedule::Exponential { factor } => factor.powf(epoch as f64),
            Schedule::Cosine { epochs, floor } => {
                let done = (epoch as f64 / (*epochs).max(1) as f64).min(1.0);
                floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
            Schedule::Warmup { epochs, then } => {
                let rising = ((epoch + 1) as f64 / (*epochs).max(1) as f64).min(1.0);
                rising * then.factor(epoch.saturating_sub(*epochs))
            }
        }
    }
}

/// Gradient clipping, applied before weight decay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Clip {
    /// All gradients are scaled by one factor so that their common 2-norm is at most this.
    GlobalNorm(f64),
    /// Every element is clamped to ± this.
    Value(f64),
}

/// The options of a parameter update.
#[derive(Clone, PartialEq, Debug)]
pub struct OptimizerOptions {
    /// The optimizer with its hyperparameters.
    pub optimizer: Optimizer,
    /// Factor of the learning rate by epoch.
    pub schedule: Schedule,
    /// Applied to the gradients first, before weight decay.
    pub clip: Option<Clip>,
}

impl OptimizerOptions {
    /// No schedule and no clipping.
    pub fn new(optimizer: Optimizer) -> Self {
        Self { optimizer, schedule: Schedule::Constant, clip: None }
    }
}
