"""Types of the public names; where each is looked up at run time is told in __init__.py."""

from ._base.errors import (
    AsrConfigError as AsrConfigError,
    CorruptFileError as CorruptFileError,
    EmptyDatasetError as EmptyDatasetError,
    ForkedProcessError as ForkedProcessError,
    InfeasiblePlanError as InfeasiblePlanError,
    InternalError as InternalError,
    InvalidArgumentError as InvalidArgumentError,
    LibraryError as LibraryError,
    LibraryNotLoadedError as LibraryNotLoadedError,
    NotFoundError as NotFoundError,
    PoisonedLibraryError as PoisonedLibraryError,
    ScanCancelledError as ScanCancelledError,
    UnsupportedError as UnsupportedError,
    VersionMismatchError as VersionMismatchError,
)
from .apply.applied_settings import (
    Applied as Applied,
    AppliedSetting as AppliedSetting,
    TooLateWarning as TooLateWarning,
)
from .apply.model_preparation import prepare_model as prepare_model
from .apply.training_arguments import UnsupportedSettingWarning as UnsupportedSettingWarning
from .batching import (
    BatchingReport as BatchingReport,
    BatchingStrategy as BatchingStrategy,
    BatchingWarning as BatchingWarning,
    LengthBucket as LengthBucket,
    LongestClips as LongestClips,
    StepSampler as StepSampler,
    compare_batching as compare_batching,
    cost_of_longest as cost_of_longest,
    memory_table as memory_table,
    split_by_memory as split_by_memory,
    use_batches as use_batches,
    with_batches as with_batches,
)
from .benchmark import BenchmarkResult as BenchmarkResult, benchmark_training as benchmark_training
from .compare.comparison_records import Comparison as Comparison, LargestModels as LargestModels, StepTime as StepTime
from .compare.gpu_comparison import (
    compare_gpus as compare_gpus,
    estimate_step_time as estimate_step_time,
    gpu_prices as gpu_prices,
    largest_models as largest_models,
)
from .compare.step_calibration import find_step_calibration as find_step_calibration
from .config import Decision as Decision, TrainingConfig as TrainingConfig
from .data.durations import BadAudioWarning as BadAudioWarning, add_durations as add_durations
from .data.labels import InfeasiblePair as InfeasiblePair, LabelReport as LabelReport, check_labels as check_labels
from .data.scan import (
    Clip as Clip,
    DatasetProfile as DatasetProfile,
    ScanResult as ScanResult,
    scan_audio as scan_audio,
)
from .explain import Caution as Caution, Explanation as Explanation
from .guard.batch_size_search import BatchSizeSearch as BatchSizeSearch, find_max_batch_size as find_max_batch_size
from .guard.training_report import GuardEvent as GuardEvent, Restart as Restart, TrainingReport as TrainingReport
from .loading.loader_rate import LoaderRate as LoaderRate, measure_loader as measure_loader
from .machine.hardware import GPU as GPU, HardwareProfile as HardwareProfile
from .machine.model import ModelProfile as ModelProfile, known_models as known_models, profile_model as profile_model
from .manager import ASRConfigManager as ASRConfigManager
from .memory import (
    Calibration as Calibration,
    EstimatorWarning as EstimatorWarning,
    EvaluationMemory as EvaluationMemory,
    MemoryEstimate as MemoryEstimate,
    MemoryModel as MemoryModel,
    RunEstimate as RunEstimate,
    StepsEstimate as StepsEstimate,
    calibrate as calibrate,
    estimate_memory as estimate_memory,
)
from .monitor import AlertReporter as AlertReporter, lightning_callback as lightning_callback
from .monitor.memory_callback import AdaptiveMemoryCallback as AdaptiveMemoryCallback
from .monitor.memory_monitor import MemoryMonitor as MemoryMonitor
from .optimal import create_optimal_config as create_optimal_config
from .plan.plan_options import PlanOptions as PlanOptions
from .plan.selection import Selection as Selection, clip_pieces as clip_pieces, select_clips as select_clips
from .recipe import (
    FineTuneResult as FineTuneResult,
    SpeechData as SpeechData,
    fine_tune as fine_tune,
    load_speech as load_speech,
)

__version__: str
