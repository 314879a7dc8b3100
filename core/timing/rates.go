package timing

import (
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Bytes per second of an all-reduce: assumptions.
var (
	nvlinkRate = Range{60e9, 120e9, 250e9} // between cards with NVLink
	pciRate    = Range{4e9, 10e9, 20e9}    // between cards without
)

// Exchange is what GPUs of one kind take to add up float32 gradients in a ring: each sends and
// receives its share of them twice.
func Exchange(g profile.GPU, gradientBytes float64, devices int) Range {
	if devices < 2 {
		return Range{}
	}
	link := pciRate
	if hasNVLink(g.Name) {
		link = nvlinkRate
	}
	return Takes(2*float64(devices-1)/float64(devices)*gradientBytes, link)
}

// hasNVLink guesses from the driver's name: server modules have it, PCIe cards mostly do not.
func hasNVLink(name string) bool {
	for _, mark := range []string{"SXM", "HBM3", "NVL", "GH200", "H200", "B200"} {
		if strings.Contains(name, mark) && !strings.Contains(name, "MIG") {
			return true
		}
	}
	return false
}

// Capability reads a compute capability such as "8.9"; 0 when it is unknown.
func Capability(g profile.GPU) float64 {
	value, err := strconv.ParseFloat(g.ComputeCapability, 64)
	if err != nil || !(value >= 0 && value < 100) {
		return 0
	}
	return value
}

// Takes is how long an amount takes at a rate: fastest at the best one.
func Takes(amount float64, rate Range) Range {
	return Range{amount / rate.High, amount / rate.Likely, amount / rate.Low}
}

// Seconds of audio that a worker reads, decodes and turns into a model's input per second, at 16
// kHz. One core of a Xeon decodes 3460 from FLAC and 2680 from MP3 (soundfile), normalizes 25 600
// for wav2vec2, and makes log-mel features of 476 when clips of 10 s are padded to 30 for Whisper;
// what collating and handing over take is assumed.
var (
	waveRate    = Range{Low: 300, Likely: 1200, High: 3000}
	featureRate = Range{Low: 150, Likely: 400, High: 1000}
	// of 50 tokens each: DataCollatorWithPadding pads 1.2 million tokens a second on the EPYC's
	// core
	tokenRate = Range{Low: 6000, Likely: 12000, High: 40000}
)

// resampled is what a second of audio takes longer for each further 16 kHz of its file's rate: MP3
// of 48 kHz 0.20 ms more than of 16 kHz, and 0.14 ms to resample it (soundfile, soxr, a core of an
// AMD EPYC of 2024); cores of usual cloud machines are taken to be half as fast.
var resampled = Range{Low: 0.15e-3, Likely: 0.3e-3, High: 0.6e-3}

const modelRate = 16000 // that models take

// WorkerRate is the one that is assumed for rows of a kind, a model_type and files of these rates:
// in Hz as text, how many clips.
func WorkerRate(kind units.RowKind, architecture string, rates map[string]int) Range {
	if kind.AreTexts() {
		return tokenRate
	}
	rate := waveRate
	switch architecture {
	case "whisper", "wav2vec2-bert", "parakeet_ctc":
		rate = featureRate
	}
	further := furtherSamples(rates)
	return Range{1 / (1/rate.Low + further*resampled.High),
		1 / (1/rate.Likely + further*resampled.Likely), 1 / (1/rate.High + further*resampled.Low)}
}

// furtherSamples is how many times more samples files hold than a model takes, beyond once.
func furtherSamples(rates map[string]int) float64 {
	clips, further := 0.0, 0.0
	for text, count := range rates {
		if hertz, err := strconv.ParseFloat(text, 64); err == nil && count > 0 && hertz > 0 &&
			hertz <= mostHertz {
			clips += float64(count)
			further += float64(count) * max(0, hertz/modelRate-1)
		}
	}
	return further / max(1, clips)
}

const mostHertz = 1e6
