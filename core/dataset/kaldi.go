package dataset

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Kaldi's data folders (kaldi-asr.org/doc/data_prep.html): wav.scp says where each recording is,
// segments cuts utterances out of recordings, utt2dur and reco2dur give seconds, text what is said.

// kaldiTables are files beside wav.scp, read when first needed.
type kaldiTables struct{ utt2dur, reco2dur, text map[string]string }

// kaldiList is the file of a Kaldi data folder that lists its clips, "" for another folder.
func kaldiList(folder string) string {
	if !isRegular(filepath.Join(folder, "wav.scp")) {
		return ""
	}
	if segments := filepath.Join(folder, "segments"); isRegular(segments) {
		return segments
	}
	return filepath.Join(folder, "wav.scp")
}

// tableOf is the table of an audio folder (huggingface.co/docs/datasets/audio_dataset), "" for
// another folder.
func tableOf(folder string) string {
	for _, name := range []string{"metadata.csv", "metadata.jsonl", "metadata.tsv"} {
		if path := filepath.Join(folder, name); isRegular(path) {
			return path
		}
	}
	return ""
}

func isRegular(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// keyed splits "key the rest".
func keyed(line []byte) (key, value string) {
	text := strings.TrimSpace(string(line))
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		return text[:i], strings.TrimSpace(text[i:])
	}
	return text, ""
}

// table reads a keyed file beside the manifest; it is empty where there is none.
func (m *manifest) table(name string) (map[string]string, error) {
	rows := map[string]string{}
	path := filepath.Join(m.folder, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return rows, nil
	}
	t, done, err := openManifest(m.ctx, path)
	if err != nil {
		return nil, err
	}
	defer done()
	return rows, t.eachLine(func(_ int, line []byte) error {
		key, value := keyed(line)
		rows[key] = value
		return nil
	})
}

// scp reads wav.scp: "recording path" or "recording command |".
func (m *manifest) scp() error {
	if err := m.readTexts(); err != nil {
		return err
	}
	return m.eachLine(func(number int, line []byte) error {
		key, value := keyed(line)
		if value == "" {
			return m.bad(number, "has no path after the name of its recording")
		}
		return m.recording(number, key, value, mention{text: m.textOf(key)})
	})
}

// segments reads "utterance recording start end", seconds; an end of -1 is the recording's.
func (m *manifest) segments() error {
	recordings, err := m.table("wav.scp")
	if err == nil {
		err = m.readTexts()
	}
	if err != nil {
		return err
	}
	return m.eachLine(func(number int, line []byte) error {
		fields := strings.Fields(string(line))
		if len(fields) < 4 {
			return m.bad(number, "has %s instead of utterance, recording, start and end",
				fault.Plural(len(fields), "field"))
		}
		start, errStart := strconv.ParseFloat(fields[2], 64)
		end, errEnd := strconv.ParseFloat(fields[3], 64)
		if errStart != nil || errEnd != nil || !(start >= 0) || !(end > start || end == -1) ||
			math.IsInf(end, 0) {
			return m.bad(number, "its start and end are not valid seconds")
		}
		source, ok := recordings[fields[1]]
		if !ok || source == "" {
			return m.bad(number, "wav.scp does not have its recording")
		}
		return m.recording(number, fields[0], source,
			mention{text: m.textOf(fields[0]), cut: true, offset: start,
				seconds: max(0, end-start)})
	})
}

// recording takes one extended filename. A command is never run: what utt2dur or the segment says
// is believed instead.
func (m *manifest) recording(number int, key, source string, r mention) error {
	switch name, offset, inArchive := archived(source); {
	case strings.HasSuffix(source, "|"):
		seconds := r.seconds
		if seconds == 0 {
			var err error
			if seconds, err = m.duration(key); err != nil {
				return err
			}
		}
		if seconds == 0 {
			return m.bad(number,
				"%s: is a command, which is not run, and utt2dur does not have it "+
					"(utils/data/get_utt2dur.sh makes it)", key)
		}
		m.addUnmeasured(key, seconds, 0, r.text)
	case strings.HasPrefix(source, "|"), source == "-":
		return m.bad(number, "%s: standard input and output are not files", key)
	case inArchive:
		m.entries = append(m.entries, entry{path: name,
			more: &detail{text: r.text, by: &arkMember{offset, r}}})
		m.good++
	default:
		r.path = source
		m.add(r)
	}
	return nil
}

// archived splits "file.ark:1234".
func archived(source string) (name string, offset int64, ok bool) {
	i := strings.LastIndexByte(source, ':')
	if i < 0 || !strings.EqualFold(filepath.Ext(source[:i]), ".ark") {
		return "", 0, false
	}
	offset, err := strconv.ParseInt(source[i+1:], 10, 64)
	return source[:i], offset, err == nil && offset >= 0
}

// duration is what utt2dur, or else reco2dur, says of a key; 0 when they do not.
func (m *manifest) duration(key string) (float64, error) {
	for name, table := range map[string]*map[string]string{"utt2dur": &m.tables.utt2dur,
		"reco2dur": &m.tables.reco2dur} {
		if *table == nil {
			rows, err := m.table(name)
			if err != nil {
				return 0, err
			}
			*table = rows
		}
	}
	for _, table := range []map[string]string{m.tables.utt2dur, m.tables.reco2dur} {
		if seconds, err := strconv.ParseFloat(table[key], 64); err == nil && seconds > 0 &&
			seconds <= maxClipS {
			return seconds, nil
		}
	}
	return 0, nil
}

func (m *manifest) readTexts() (err error) {
	if m.texts {
		m.tables.text, err = m.table("text")
	}
	return err
}

func (m *manifest) textOf(key string) *string {
	if text, ok := m.tables.text[key]; ok {
		return &text
	}
	return nil
}

// durations reads utt2dur by itself: "utterance seconds".
func (m *manifest) durations() error {
	if err := m.readTexts(); err != nil {
		return err
	}
	return m.eachLine(func(number int, line []byte) error {
		key, value := keyed(line)
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || !(seconds > 0) || seconds > maxClipS {
			return m.bad(number, "has no duration of up to %g s behind the name of its utterance",
				maxClipS)
		}
		m.addUnmeasured(key, seconds, 0, m.textOf(key))
		return nil
	})
}

// arkMember is a WAV file inside an archive of Kaldi, which says where it starts but not where it
// ends: its own header does.
type arkMember struct {
	start int64
	row   mention
}

func (a *arkMember) measure(e entry) profile.Clip {
	clip := sectionClip(e.path, e.path+":"+strconv.FormatInt(a.start, 10), a.start, 0)
	if !a.row.cut {
		return clip
	}
	recording := measured{clip: clip}
	recording.once.Do(func() {})
	return (&segment{&recording, a.row.offset, a.row.seconds}).measure(e)
}

// segmentSlackS is how far a row may be off from the file before it is called wrong: manifests
// round to hundredths.
const segmentSlackS = 0.02

// segment is a piece of a file, as rows of NeMo, Kaldi's segments and Lhotse's cuts name it.
type segment struct {
	file    *measured
	offset  float64
	seconds float64 // 0: to the end of the file
}

// measured is a file that is measured once for all its pieces: a recording of hours may have
// thousands.
type measured struct {
	once sync.Once
	clip profile.Clip
}

// measure returns the piece that the file really holds. A piece that ends behind the file counts
// with what is there and keeps what the row claims; one that starts behind it is bad.
func (c *segment) measure(e entry) profile.Clip {
	c.file.once.Do(func() { c.file.clip = measureOne(entry{path: e.path}) })
	return cut(c.file.clip, c.offset, c.seconds)
}

// cut returns the seconds from offset on of a clip; 0 seconds are all to its end.
func cut(clip profile.Clip, offset, seconds float64) profile.Clip {
	if clip.Error != "" {
		return clip
	}
	duration := *clip.DurationS
	available := duration - offset
	clip.ClaimedS, clip.DurationS = nil, nil
	switch {
	case !(offset >= 0) || !(seconds >= 0) || math.IsInf(offset+seconds, 0):
		clip.Error = fmt.Sprintf("the row asks for %g s from %g s on", seconds, offset)
		return clip
	case available <= 0:
		clip.Error = fmt.Sprintf("the row starts at %.3f s, but the file ends at %.3f s", offset,
			duration)
		return clip
	case seconds > available+segmentSlackS:
		clip.ClaimedS = &seconds
	case seconds > 0:
		available = min(available, seconds)
	}
	clip.DurationS = &available
	clip.SizeBytes = int64(float64(clip.SizeBytes) * available / duration)
	return clip
}

// measureOne measures one entry by itself.
func measureOne(e entry) profile.Clip {
	c := Clips{rows: make([]row, 1)}
	guarded(&e, &c.rows[0], &reader{Clips: &c})
	clip := c.At(0)
	if lost := c.lost.Load(); lost != nil {
		clip.Lost = lost
	}
	return clip
}
