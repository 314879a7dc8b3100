package timing

import (
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Bytes per second of an all-reduce: assumptions, not measured.
var (
	nvlinkRate = profile.Range{Low: 60e9, Likely: 120e9, High: 250e9} // between GPUs with NVLink
	pciRate    = profile.Range{Low: 4e9, Likely: 10e9, High: 20e9}    // between GPUs without
)

// What one data loader worker makes per second, on one core.
//
// Audio: seconds at 16 kHz that it reads, decodes and turns into a model's input. One core of a
// Xeon decodes 3460 from FLAC and 2680 from MP3 (soundfile), normalizes 25 600 for wav2vec2, and
// computes log-mel features of 476 when clips of 10 s are padded to 30 for Whisper. What collating
// and passing to the training process take is assumed.
//
// Texts: rows of 50 tokens. One core of an AMD EPYC pads 1.2 million tokens a second with
// DataCollatorWithPadding.
var (
	waveRate    = profile.Range{Low: 300, Likely: 1200, High: 3000}
	featureRate = profile.Range{Low: 150, Likely: 400, High: 1000}
	tokenRate   = profile.Range{Low: 6000, Likely: 12000, High: 40000}
)

// resampled is how many seconds longer a second of audio takes for each 16 kHz by which its file's
// sample rate exceeds modelRate. Of MP3 at 48 kHz, decoding takes 0.20 ms more than at 16 kHz and
// resampling 0.14 ms (soundfile, soxr, one core of an AMD EPYC of 2024); usual cloud machines are
// assumed to have cores of half that speed.
var resampled = profile.Range{Low: 0.15e-3, Likely: 0.3e-3, High: 0.6e-3}

const (
	modelRate = 16000 // Hz that models take
	maxHertz  = 1e6   // a higher sample rate is malformed
)

// Exchange is the time in which GPUs of one kind add up gradients of so many bytes in a ring: each
// sends and receives (devices - 1) / devices of them twice.
func Exchange(g profile.GPU, gradientBytes float64, devices int) profile.Range {
	if devices < 2 {
		return profile.Range{}
	}
	link := pciRate
	if hasNVLink(g.Name) {
		link = nvlinkRate
	}
	return Takes(2*float64(devices-1)/float64(devices)*gradientBytes, link)
}

// hasNVLink guesses from the driver's name of a GPU: server modules (SXM; an H100 of that kind has
// "HBM3" in its name) have NVLink, PCIe cards mostly do not, and a MIG slice cannot use it.
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

// Takes returns the time that an amount takes at a rate: Low at the highest rate.
func Takes(amount float64, rate profile.Range) profile.Range {
	return profile.Range{Low: amount / rate.High, Likely: amount / rate.Likely,
		High: amount / rate.Low}
}

// WorkerRate is the assumed rate of one data loader worker: seconds of audio per second, or rows of
// texts. architecture is the model_type of the model's configuration, rates the number of clips of
// each sample rate (in Hz, as text) of the dataset.
func WorkerRate(kind units.RowKind, architecture string, rates map[string]int) profile.Range {
	if kind.AreTexts() {
		return tokenRate
	}
	rate := waveRate
	switch architecture {
	case "whisper", "wav2vec2-bert", "parakeet_ctc", "parakeet_rnnt", "parakeet_tdt", "canary",
		"cohere_asr", "speech_to_text", "seamless_m4t_v2", "qwen2_audio", "qwen3_asr", "glmasr",
		"granite_speech", "voxtral", "voxtral_realtime", "audio-spectrogram-transformer":
		rate = featureRate
	}
	perSecond := Takes(1, rate).Plus(resampled.Times(furtherSamples(rates)))
	return Takes(1, perSecond)
}

// furtherSamples is how many samples the clips of a dataset have beyond those at modelRate, per
// sample at modelRate: 2 when all are at 48 kHz. It is 0 without clips.
func furtherSamples(rates map[string]int) float64 {
	clips, further := 0.0, 0.0
	for text, count := range rates {
		if hertz, err := strconv.ParseFloat(text, 64); err == nil && count > 0 && hertz > 0 &&
			hertz <= maxHertz {
			clips += float64(count)
			further += float64(count) * max(0, hertz/modelRate-1)
		}
	}
	return further / max(1, clips)
}
