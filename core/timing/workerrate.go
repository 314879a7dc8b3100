package timing

import (
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/units"
)

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
