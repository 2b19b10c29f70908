#include "engine/builtin_text.h"

namespace octet {

std::string_view builtin_text() {
  return
      R"text(The harbour master kept two ledgers. In the first she wrote what came in: timber, salt, oranges in crates, letters for people who had moved away. In the second she wrote what she thought of it. "A ship," she told the new clerk, "is a promise that somebody made in another port. Our work is to see whether it was kept." He nodded, and wondered when he would be allowed to go home.

## Terms of use

You may copy, change and distribute this document, provided that each copy carries this notice; that no further restriction is imposed on the recipients; and that the source is offered on the same conditions. There is no warranty of any kind, to the extent permitted by applicable law.

def moving_average(values, window=3):
    """Mean of each run of `window` values."""
    if window < 1:
        raise ValueError(f"window is {window}, expected at least 1")
    total = sum(values[:window])
    yield total / window
    for old, new in zip(values, values[window:]):
        total += new - old
        yield total / window

Measured on 14 March 2019: 3.14159, -273.15, 1,024 and 6.022e23; the total came to $48,317.60, or 12.5 % more than in 2018.

Question: Why does the sea look blue? Answer: Water absorbs red light a little more strongly than blue, so what is scattered back after several metres has lost most of its red.

Als der Regen endlich aufhörte, gingen die Kinder über die nasse Brücke. Le lendemain, personne ne se souvenait de la fête. Всё, что осталось, уместилось в одну коробку. 春天来了，河边的树都绿了。 今日は雨が降っています。 كان الطريق طويلا لكنه جميل. नमस्ते दुनिया।

for (std::size_t i = 0; i + 1 < names.size(); ++i) {
  if (names[i] == names[i + 1]) return std::nullopt;  // sorted, so equal names are neighbours
}

{"id": 7, "name": "north gate", "open": true, "visits": [12, 0, 431], "note": null}

<p class="lead">See also <a href="/archive/1997">the archive</a>.</p>

SELECT city, COUNT(*) AS orders FROM sales WHERE year >= 2015 GROUP BY city ORDER BY orders DESC;

The theorem says that every continuous function on a closed interval attains its largest value. Suppose it did not; then for each point there would be a greater one, and a sequence of such points, having a limit in the interval, would contradict continuity. The proof is short, but what it rests on took two centuries to say properly.

- preheat the oven to 180 degrees
- mix flour, butter and sugar until the dough holds together
- rest it for half an hour, then roll it out thinly

From: Ana Duarte. To: the committee. Subject: minutes of Tuesday's meeting. We agreed that the library stays open until nine, that the roof cannot wait for another winter, and that somebody (not me) will write to the council. The treasurer reported that 62 of 80 members have paid; the remaining 18 will get a friendly reminder, and after that a less friendly one. The next meeting is on the first Thursday in May, at the usual place, and visitors are welcome as long as they bring their own chairs.

He had learned early that most things break at the joint: chairs, treaties, sentences. So he tested joints. He leaned on tables in other people's kitchens, asked what exactly was meant by "soon", and read contracts from the last page to the first. It did not make him popular, but for thirty years nothing that he had signed fell down.
)text";
}

}  // namespace octet
