package dataset

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Kaldi's data folders (kaldi-asr.org/doc/data_prep.html): wav.scp says where each recording is, segments cuts utterances out
// of recordings, utt2dur and reco2dur give seconds, text what is said.

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

// tableOf is the table of an audio folder (huggingface.co/docs/datasets/audio_dataset), "" for another folder.
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
func keyed(line []byte) (key, rest string) {
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
		key, rest := keyed(line)
		rows[key] = rest
		return nil
	})
}

// scp reads wav.scp: "recording path" or "recording command |".
func (m *manifest) scp() error {
	if err := m.readTexts(); err != nil {
		return err
	}
	return m.eachLine(func(number int, line []byte) error {
		key, rest := keyed(line)
		if rest == "" {
			return m.bad(number, "has no path after the name of its recording")
		}
		return m.recording(number, key, rest, mention{text: m.textOf(key)})
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
			return m.bad(number, "has %s instead of utterance, recording, start and end", fault.Plural(len(fields), "field"))
		}
		start, errStart := strconv.ParseFloat(fields[2], 64)
		end, errEnd := strconv.ParseFloat(fields[3], 64)
		if errStart != nil || errEnd != nil || !(start >= 0) || !(end > start || end == -1) || math.IsInf(end, 0) {
			return m.bad(number, "its start and end are not valid seconds")
		}
		rest, known := recordings[fields[1]]
		if !known || rest == "" {
			return m.bad(number, "wav.scp does not have its recording")
		}
		return m.recording(number, fields[0], rest, mention{text: m.textOf(fields[0]), cut: true, offset: start, seconds: max(0, end-start)})
	})
}

// recording takes one extended filename. A command is never run: what utt2dur or the segment says is believed instead.
func (m *manifest) recording(number int, key, rest string, r mention) error {
	switch name, offset, inArchive := archived(rest); {
	case strings.HasSuffix(rest, "|"):
		seconds := r.seconds
		if seconds == 0 {
			var err error
			if seconds, err = m.duration(key); err != nil {
				return err
			}
		}
		if seconds == 0 {
			return m.bad(number, "%s: is a command, which is not run, and utt2dur does not have it (utils/data/get_utt2dur.sh makes it)", key)
		}
		m.given(key, seconds, 0, r.text)
	case strings.HasPrefix(rest, "|"), rest == "-":
		return m.bad(number, "%s: standard input and output are not files", key)
	case inArchive:
		m.entries = append(m.entries, entry{path: name, more: &detail{text: r.text, by: &arkMember{offset, r}}})
		m.good++
	default:
		r.path = rest
		m.add(r)
	}
	return nil
}

// archived splits "file.ark:1234".
func archived(rest string) (name string, offset int64, ok bool) {
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || !strings.EqualFold(filepath.Ext(rest[:i]), ".ark") {
		return "", 0, false
	}
	offset, err := strconv.ParseInt(rest[i+1:], 10, 64)
	return rest[:i], offset, err == nil && offset >= 0
}

// duration is what utt2dur, or else reco2dur, says of a key; 0 when they do not.
func (m *manifest) duration(key string) (float64, error) {
	for name, table := range map[string]*map[string]string{"utt2dur": &m.tables.utt2dur, "reco2dur": &m.tables.reco2dur} {
		if *table == nil {
			rows, err := m.table(name)
			if err != nil {
				return 0, err
			}
			*table = rows
		}
	}
	for _, table := range []map[string]string{m.tables.utt2dur, m.tables.reco2dur} {
		if seconds, err := strconv.ParseFloat(table[key], 64); err == nil && seconds > 0 && seconds <= maxClipS {
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
	if text, known := m.tables.text[key]; known {
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
		key, rest := keyed(line)
		seconds, err := strconv.ParseFloat(rest, 64)
		if err != nil || !(seconds > 0) || seconds > maxClipS {
			return m.bad(number, "has no duration of up to %g s behind the name of its utterance", maxClipS)
		}
		m.given(key, seconds, 0, m.textOf(key))
		return nil
	})
}

// arkMember is a WAV file inside an archive of Kaldi, which says where it starts but not where it ends: its own header does.
type arkMember struct {
	start int64
	row   mention
}

func (a *arkMember) measure(e entry) profile.Clip {
	clip := sectionClip(e.path, e.path+":"+strconv.FormatInt(a.start, 10), a.start, 0)
	if !a.row.cut {
		return clip
	}
	whole := measured{clip: clip}
	whole.once.Do(func() {})
	return (&segment{&whole, a.row.offset, a.row.seconds}).measure(e)
}
