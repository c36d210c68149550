"""VideoReader: frames with their time stamps in seconds, decoded by PyAV, as LeRobot's pyav backend reads them."""

from collections.abc import Iterator

import av
import torch


class VideoReader:
    """Iterates over {"data": uint8 (3, h, w), "pts": seconds} from the keyframe at or before the sought time."""

    def __init__(self, path: str, stream: str) -> None:
        self.container = av.open(path)
        self._video = self.container.streams.video[0]

    def seek(self, time_s: float, *, keyframes_only: bool = False) -> None:
        self.container.seek(int(max(time_s - 1e-6, 0) / self._video.time_base), stream=self._video, backward=True)

    def __iter__(self) -> Iterator[dict]:
        for frame in self.container.decode(self._video):
            data = torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1)
            yield {"data": data, "pts": float(frame.pts * self._video.time_base)}
