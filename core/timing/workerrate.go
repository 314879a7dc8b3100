package timing

// Seconds of audio that a worker reads, decodes and turns into a model's input per second, at 16 kHz. One core of a Xeon
// decodes 3460 from FLAC and 2680 from MP3 (soundfile), normalizes 25 600 for wav2vec2, and makes log-mel features of 476
// when clips of 10 s are padded to 30 for Whisper; what collating and handing over take is assumed.
var (
	waveRate    = Range{Low: 300, Likely: 1200, High: 3000}
	featureRate = Range{Low: 150, Likely: 400, High: 1000}
)

// WorkerRate is the one that is assumed for a model_type.
func WorkerRate(architecture string) Range {
	switch architecture {
	case "whisper", "wav2vec2-bert", "parakeet_ctc":
		return featureRate
	}
	return waveRate
}
