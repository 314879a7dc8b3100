package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flops of a clip of some units, by the plan.
func flops(t *testing.T, name, card string, units float64) float64 {
	t.Helper()
	a := planned(t, described(t, name, speech(400, 20, 1), card)).Arithmetic
	require.NotNil(t, a)
	return a.ClipFLOPs[0] + units*(a.ClipFLOPs[1]+units*a.ClipFLOPs[2])
}

// encoderByHand is the forward pass of a transformer's layers over so many positions: four projections and a feed-forward of four widths,
// and the two products of attention.
func encoderByHand(layers, width, positions float64) float64 {
	return layers * (2*positions*(4*width*width+2*width*4*width) + 4*positions*positions*width)
}

// TestArithmeticByHand: wav2vec2's convolutions, its 24 layers of 1024, of which a tenth is left out (layerdrop), the positional convolution of 16 groups; three times the forward
// pass, as wav2vec2 in training asks for the gradient of its samples, too.
func TestArithmeticByHand(t *testing.T) {
	for _, seconds := range []float64{2, 7.3, 20} {
		length, channels, forward := 16000*seconds, 1.0, 0.0
		for _, layer := range [][2]float64{{10, 5}, {3, 2}, {3, 2}, {3, 2}, {3, 2}, {2, 2}, {2, 2}} {
			length = math.Floor((length-layer[0])/layer[1]) + 1
			forward, channels = forward+2*512*channels*layer[0]*length, 512
		}
		forward += 2*512*1024*length + 2*1024*(1024/16)*128*length + encoderByHand(24*0.9, 1024, length) + 2*1024*32*length
		assert.InEpsilon(t, 3*forward, flops(t, xlsr, "T4", seconds), 0.005, "%v s", seconds)
	}
}

// TestWhispersArithmeticByTranscript: its audio is always 30 s.
func TestWhispersArithmeticByTranscript(t *testing.T) {
	const width, mels, vocabulary = 768, 80, 51865
	for _, tokens := range []float64{10, 120} {
		encoder := 2*3000*width*3*mels + 2*1500*width*3*width + encoderByHand(12, width, 1500)
		self := encoderByHand(12, width, tokens)
		cross := 12 * (2*2*tokens*width*width + 2*2*1500*width*width + 4*tokens*1500*width)
		forward := encoder + self + cross + 2*tokens*width*vocabulary
		samples := 2 * 3000 * width * 3 * float64(mels)
		assert.InEpsilon(t, 3*forward-samples, flops(t, whisperSmall, "T4", tokens), 0.01, "%v tokens", tokens)
	}
}

func TestArithmeticsRate(t *testing.T) {
	for card, rate := range map[string]float64{"T4": 65e12, "A100-40GB": 312e12} {
		a := planned(t, described(t, xlsr, speech(400, 20, 1), card)).Arithmetic
		require.NotNil(t, a.Rate)
		assert.InEpsilon(t, rate, *a.Rate, 1e-3, card)
	}
}
