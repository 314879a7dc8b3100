package profile

import "github.com/asrconfig/asrconfig-go/core/units"

// Clip is what is known about one audio file or buffer.
type Clip struct {
	// file path, or the name of a buffer or an array
	Path string `json:"path"`
	// playable seconds; absent when the file cannot be read
	DurationS *float64 `json:"duration_s"`
	// seconds by the header, where the file holds something else
	ClaimedS   *float64 `json:"claimed_duration_s"`
	SampleRate int      `json:"sample_rate"` // Hz; 0 when unreadable
	Channels   int      `json:"channels"`    // 0 when unreadable
	// bits per stored sample; 0 where the codec has none (Vorbis), and when unreadable
	Bits int `json:"bits"`
	// "pcm_s16le", "pcm_f32le", "flac", "vorbis", "array"; "" when unreadable
	Codec string `json:"codec"`
	// how the duration was determined, one of Methods; "" when unreadable
	Method    string `json:"method"`
	SizeBytes int64  `json:"size_bytes"` // bytes on disk, or of the buffer
	Error     string `json:"error"`      // why the clip cannot be used; "" when it can
}

// Methods are the ways in which a duration was determined:
//   - "header": from the header, and the file's size agrees;
//   - "tail": from the end of the file;
//   - "walked": frames or pages were counted one by one;
//   - "estimated": computed from a rate or a sample of frames, where counting is impossible or
//     takes too long;
//   - "given": by the caller, of an array or a clip measured before.
var Methods = []string{"header", "tail", "walked", "estimated", "given"}

// BadFile is a file that is left out, with the reason.
type BadFile struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

// Histogram is the number of clips by duration: counts[i] clips last from edges_s[i] to less than
// edges_s[i + 1] seconds. The last bin includes its upper edge.
type Histogram struct {
	EdgesS []float64 `json:"edges_s"`
	Counts []int     `json:"counts"`
}

// Padding is what batches in one order hold: each of their clips is padded to the longest.
type Padding struct {
	// "random", "grouped" (as group_by_length of the Trainer), "bucketed" (ten buckets of equal
	// seconds) or "sorted"
	Order   string  `json:"order"`
	PaddedS float64 `json:"padded_s"` // seconds of all batches, padding included
	Waste   float64 `json:"waste"`    // 0..1: the share of these seconds that is padding
}

// Outliers are a few long clips that take up much of the batches' time.
type Outliers struct {
	OverS float64 `json:"over_s"` // seconds that they exceed
	Count int     `json:"count"`  // how many of the measured clips they are
	// 0..1: the share of the seconds of random batches that leaving them out saves
	PaddedShare float64 `json:"padded_share"`
}

// Duplicates are clips that are very likely copies of others: they have the same size and duration,
// and the same bytes where those were read.
type Duplicates struct {
	Count  int        `json:"count"`  // measured clips that copy others
	Hours  float64    `json:"hours"`  // how long the copies last
	Groups [][]string `json:"groups"` // paths of copies: at most 20 groups of at most 5
}

// Sampling is how far the figures of a sample may be off, with 95 % confidence.
type Sampling struct {
	// shards of a stream that rows were read from; 0 where clips were drawn one by one
	Shards     int     `json:"shards"`
	Population *int    `json:"population"` // clips that were drawn from; absent when unknown
	MeanLowS   float64 `json:"mean_low_s"` // the mean duration of all clips is at least this
	// the mean duration of all clips is at most this; absent for a single clip
	MeanHighS *float64 `json:"mean_high_s"`
	// 0..1: at most this share of all clips is longer than the longest measured one
	LongerShare float64 `json:"longer_share"`
}

// Dataset summarises a dataset. Its statistics cover the usable clips that were measured.
type Dataset struct {
	// what a row is: "clips", or "texts" with a length in tokens, 50 of which count as a second
	RowKind units.RowKind `json:"row_kind"`
	// clips in the dataset without bad ones; an estimate when Sampled
	SampleCount   int `json:"sample_count"`
	MeasuredCount int `json:"measured_count"` // usable clips that were measured
	// whether a random sample stands for the whole dataset
	Sampled bool `json:"sampled"`
	// how far the sample may be off; absent when all clips were measured or none is usable
	Sampling *Sampling `json:"sampling"`
	BadCount int       `json:"bad_count"` // clips that cannot be used
	// the first 10 000 bad clips, in source order
	BadFiles []BadFile `json:"bad_files"`
	// clips that hold less than their header claims
	ShortenedCount int     `json:"shortened_count"`
	MeanS          float64 `json:"mean_s"`
	StdS           float64 `json:"std_s"` // population standard deviation
	MinS           float64 `json:"min_s"`
	MaxS           float64 `json:"max_s"`
	// "p1" "p5" "p10" "p25" "p50" "p75" "p90" "p95" "p99", linear interpolation
	PercentilesS map[string]float64 `json:"percentiles_s"`
	Histogram    Histogram          `json:"histogram"`
	TotalHours   float64            `json:"total_hours"` // of all clips; an estimate when Sampled
	SizeBytes    int64              `json:"size_bytes"`  // as stored; an estimate when Sampled
	// as 16 kHz mono float32, seconds × 16000 × 4; an estimate when Sampled
	DecodedBytes int64          `json:"decoded_bytes"`
	ShareOver30S float64        `json:"share_over_30s"` // 0..1, the share of clips over 30 s
	SampleRates  map[string]int `json:"sample_rates"`   // clips by rate, in Hz as text
	Channels     map[string]int `json:"channels"`       // clips by channel count as text
	Codecs       map[string]int `json:"codecs"`         // clips by codec
	Methods      map[string]int `json:"methods"`        // clips by how durations were determined
	BatchSize    int            `json:"batch_size"`     // clips per batch that Padding assumes
	// of the measured clips, by order; empty without any
	Padding []Padding `json:"padding"`
	// absent unless a few clips take much time
	Outliers   *Outliers  `json:"outliers"`
	Duplicates Duplicates `json:"duplicates"`
	// what may go wrong in training; silent clips are not detected
	Warnings []string `json:"warnings"`
	// what was read: "folder /data", "list of 40 paths", "40 arrays"
	Source string `json:"source"`
}

// Stored is "1.2 GiB on disk", or "1.2 GiB as arrays".
func (d Dataset) Stored() string {
	if d.MeasuredCount > 0 && d.Codecs["array"] == d.MeasuredCount {
		return units.Size(d.SizeBytes) + " as arrays"
	}
	return units.Size(d.SizeBytes) + " on disk"
}
