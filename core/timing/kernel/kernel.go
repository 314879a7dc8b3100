package kernel

import (
	"cmp"
	"math"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// Model predicts the seconds of operations on one card.
type Model struct {
	card                    Card
	single, batched, tensor Efficiency
	memory                  Fit
	residuals               Fit  // those that say how far off its times are
	measured                bool // in tables of its own
	launch                  float64
	dispatch                *profile.Range // measured on this machine; nil
	// by kernels that were measured on this very card; nil
	factors map[groupKey]timing.Calibration
}

// launchGap is what one kernel takes on the GPU besides its work, in seconds: assumed, and half a
// percent of the steps in the benchmarks.
const launchGap = 3e-6

// A tensor core's tiles against the best one, and its prologue: a block's start and end cost more
// as its arithmetic takes less. [dev]
var tensorTiles = [5]float64{1, 0.9, 0.75, 0.65, 0.4}

const tensorPrologue, tensorBandwidth = 48, 0.8

// New is the model of a card.
func New(card Card) *Model {
	model := &Model{card: card, launch: launchGap}
	own, measured := fitted().Cards[card.Key]
	model.single, model.batched, model.memory = own.Single, own.Batched, own
	switch {
	case !measured:
		base := fitted().Cards[card.base]
		model.single, model.batched = model.carried(base.Single), model.carried(base.Batched)
		model.memory = fitted().Cards[card.memoryOf()]
	case card.onSlotPower():
		model.single, model.batched = own.Single.scaled(cooler), own.Batched.scaled(cooler)
	}
	model.tensor = model.tensorEfficiency()
	if model.residuals, model.measured = own, measured; !measured {
		model.residuals = fitted().Cards[model.nearest()]
	}
	return model
}

// cooler is how much faster products run in a step than in the tables on cards that lower their
// clock: the tables are products back to back, a step has kernels between them that wait for
// memory. All five points of the T4 are too long without it, and so are NeuSight's own predictions,
// from the same tables. [dev]
const cooler = 1.12

// memoryOf is the fitted card whose memory is of the same kind.
func (c Card) memoryOf() string {
	if c.gddrWithECC {
		return turing
	}
	return cmp.Or(c.memory, c.base)
}

// carried takes the shares of a fitted card to this one: what the source's power supply held back
// is given back, and this one's is applied.
func (m *Model) carried(e Efficiency) Efficiency {
	if m.card.base == ampere {
		e = e.scaled(min(unthrottled/e.peak(), 1/ampereLimit))
	}
	e = e.scaled(m.card.simtShare)
	return e.scaled(min(1, m.card.limit(m.card.simtPerWatt, m.card.FP32)/e.peak()))
}

// unthrottled is the share of the float32 rate that the best tile reaches with power to spare: 94 %
// on an A100 of 300 W. ampereLimit is what the 250 W of the fitted A100 leave of its float32 rate.
const unthrottled, ampereLimit = 0.95, 0.795

func (m *Model) tensorEfficiency() Efficiency {
	share := min(m.card.tensorShare, m.card.limit(m.card.tensorWatt, m.card.FP16))
	return Efficiency{Tiles: tensorTiles, Prologue: tensorPrologue,
		Bandwidth: tensorBandwidth}.scaled(share)
}

// Seconds is what an operation takes on the GPU, its repetitions included. Errors: InvalidArgument
// from Operation.Check.
func (m *Model) Seconds(o Operation) (float64, error) {
	if err := o.Check(); err != nil {
		return 0, err
	}
	seconds := m.moving(o)
	switch o.Kind {
	case GEMM:
		seconds = m.multiplying(o)
	case Convolution:
		seconds = max(seconds, m.multiplying(o)*m.memory.Convolution) + m.reordering(o)
	case Transfer:
		seconds = max(o.Read, o.Written) / m.card.link
	case Attention:
		seconds = max(seconds, o.FLOPs()/(m.Rate(o.DType)*fusedAttentionShare))
	}
	if factor, measured := m.factors[o.group()]; measured {
		seconds *= factor.Factor
	}
	seconds += m.launch * o.launches()
	if math.IsInf(seconds, 0) || math.IsNaN(seconds) {
		return 0, fault.New(fault.Internal, "report the operation",
			"the operation %q takes %v s on %s", fault.Shorten(o.Name), seconds, m.card.Key)
	}
	return seconds * cmp.Or(o.Times, 1), nil
}

// reordering is what cuDNN takes to copy a convolution's operands into the layout of its tensor
// cores' kernels, channels last, and the result back, in types of 16 bits. With fewer than eight
// channels its kernels take them as they are; PyTorch asks for workspaces of just these copies.
func (m *Model) reordering(o Operation) float64 {
	if o.DType != Float16 && o.DType != BFloat16 || min(o.M, o.N, o.K) < fewChannels {
		return 0
	}
	return m.moving(Operation{Kind: Copy, DType: o.DType, Phase: o.Phase, Read: o.Bytes(),
		Written: o.Bytes()})
}

// fewChannels: a filter over so few values has less than eight channels.
const fewChannels = 16

// fusedAttentionShare of the rate is what FlashAttention-2 reports for head sizes of 64 and 128
// (arXiv 2307.08691, 50 to 73 % forward, up to 63 % backward).
const fusedAttentionShare = 0.5

// Rate of arithmetic in a type, in FLOP/s, as the card's maker publishes it.
func (m *Model) Rate(d DType) float64 {
	_, rate := m.unit(Operation{DType: d})
	return rate
}

func (m *Model) multiplying(o Operation) float64 {
	efficiency, rate := m.unit(o)
	return efficiency.Seconds(o, m.card, rate)
}

// unit is where a product runs, and how well: tensor cores where the card has them for the type,
// else the float32 units.
func (m *Model) unit(o Operation) (Efficiency, float64) {
	switch {
	case o.DType == TF32 && m.card.TF32 > 0:
		return m.tensor, m.card.TF32
	case o.DType == Float16 && m.card.tensorShare > 0 && m.card.FP16 > 0, o.DType == BFloat16 &&
		m.card.fastBFloat16:
		return m.tensor, m.card.FP16
	case o.DType == Float16 && m.card.FP16 > m.card.FP32: // twice the rate in the same units
		return m.simt(o), m.card.FP16
	}
	return m.simt(o), m.card.FP32
}

// simt is the efficiency of the float32 units: batched products run in other kernels than single
// ones.
func (m *Model) simt(o Operation) Efficiency {
	if o.Batch > 1 {
		return m.batched
	}
	return m.single
}
