"""The charts, each name once: what editors see, and what is imported when a name is first used."""

# Charts that only results themselves ask for: not listed.
from firstguess.show.charts.class_shares import compare_chart as compare_chart
from firstguess.show.charts.class_shares import law_chart as law_chart
from firstguess.show.charts.class_shares import prediction_chart as prediction_chart
from firstguess.show.charts.class_shares import readings_chart as readings_chart
from firstguess.show.charts.class_shares import sampled_law_chart as sampled_law_chart
from firstguess.show.charts.class_shares import strip_chart as strip_chart
from firstguess.show.charts.diagnosis import advice_chart as advice_chart
from firstguess.show.charts.diagnosis import correlation_chart as correlation_chart
from firstguess.show.charts.diagnosis import gradients_chart as gradients_chart
from firstguess.show.charts.dots import Dot as Dot
from firstguess.show.charts.dots import curves_chart as curves_chart
from firstguess.show.charts.dots import data_bias_chart as data_bias_chart
from firstguess.show.charts.dots import differences_chart as differences_chart
from firstguess.show.charts.dots import dots_chart as dots_chart
from firstguess.show.charts.dots import explanation_chart as explanation_chart
from firstguess.show.charts.dots import finite_size_chart as finite_size_chart
from firstguess.show.charts.dots import matched_chart as matched_chart
from firstguess.show.charts.dots import repaired_chart as repaired_chart
from firstguess.show.charts.files import check_path as check_path
from firstguess.show.charts.files import save as save
from firstguess.show.charts.frontier import frontier_chart as frontier_chart
from firstguess.show.charts.gamma_by_depth import gamma_by_depth_chart as gamma_by_depth_chart
from firstguess.show.charts.gamma_by_depth import structure_chart as structure_chart
from firstguess.show.charts.gamma_by_depth import tuned_chart as tuned_chart
from firstguess.show.charts.guesses import guesses_chart as guesses_chart
from firstguess.show.charts.guesses import support_chart as support_chart
from firstguess.show.charts.lines import Panel as Panel
from firstguess.show.charts.lines import Series as Series
from firstguess.show.charts.lines import lines_chart as lines_chart
from firstguess.show.charts.lines import panels_chart as panels_chart
from firstguess.show.charts.logits import logits_chart as logits_chart
from firstguess.show.charts.logits import logits_film as logits_film
from firstguess.show.charts.phases import fixed_point_chart as fixed_point_chart
from firstguess.show.charts.phases import phase_diagram_chart as phase_diagram_chart
from firstguess.show.charts.phases import transformer_phases_chart as transformer_phases_chart
from firstguess.show.charts.sweep import study_chart as study_chart
from firstguess.show.charts.training import absorption_chart as absorption_chart
from firstguess.show.charts.training import modes_chart as modes_chart
from firstguess.show.charts.training import training_chart as training_chart
from firstguess.watch.chart import watch_chart as watch_chart

__all__ = [
    "Dot",
    "Panel",
    "Series",
    "absorption_chart",
    "advice_chart",
    "compare_chart",
    "correlation_chart",
    "dots_chart",
    "frontier_chart",
    "gamma_by_depth_chart",
    "gradients_chart",
    "guesses_chart",
    "law_chart",
    "lines_chart",
    "logits_chart",
    "logits_film",
    "modes_chart",
    "panels_chart",
    "phase_diagram_chart",
    "readings_chart",
    "save",
    "strip_chart",
    "study_chart",
    "training_chart",
    "watch_chart",
]
